"""How tensors lie in memory: aliases among arguments and results, strides, memory that is not PyTorch's."""
