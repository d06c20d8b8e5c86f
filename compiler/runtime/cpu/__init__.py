"""The CPU runtime: an MLIR function becomes machine code, which is called on PyTorch's tensors."""
