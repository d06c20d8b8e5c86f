"""PyTorch's own Python modules, by whose names its objects are told apart."""

from __future__ import annotations

# Ops, what makes or marks a program, and contexts that leave what they found: their objects never change.
UNCHANGING = (
    "torch._C", "torch._ops", "torch._library", "torch.library", "torch.autograd", "torch.jit", "torch.fx",
    "torch._export", "torch.export", "torch.ao", "torch._dynamo", "torch._functorch", "torch.func", "torch.overrides",
    "torch._higher_order_ops", "torch._jit_internal", "torch._prims", "torch._refs", "torch.backends", "torch.types",
    "torch._tensor", "torch._classes", "torch.random", "torch.return_types", "torch._subclasses", "torch.utils._",
)  # fmt: skip
