"""torch tensors <-> MLIR memrefs: dtypes and descriptors. No copies but of lazy bits and of zeros without memory."""

from __future__ import annotations

import torch

from torchstone.compiler._torch.tensors import is_zero_tensor, with_values_in_memory
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.ir.dtypes import DTYPES, DType

TORCH_DTYPES: dict[str, torch.dtype] = {d.name: getattr(torch, d.name) for d in DTYPES if hasattr(torch, d.name)}
IR_DTYPES: dict[torch.dtype, DType] = {TORCH_DTYPES[d.name]: d for d in DTYPES if d.name in TORCH_DTYPES}


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return torch's dtype; Unsupported when this torch has none of that name."""
    try:
        return TORCH_DTYPES[dtype.name]
    except KeyError:
        raise Unsupported(f"torch {torch.__version__} has no dtype {dtype.name}", stage="run") from None


def is_readable(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is plain, as most are: ``readable`` would give it back."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.is_conj() or tensor.is_neg() or is_zero_tensor(tensor))
    )


def readable(tensor: torch.Tensor, name: str = "argument") -> torch.Tensor:
    """Return a tensor whose memory holds its values: itself, or a copy of one with a lazy bit or without memory.

    GuardError unless it is a plain strided tensor on the CPU.
    """
    if type(tensor) is not torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise GuardError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        above = type(tensor).__mro__
        if any("__torch_dispatch__" in vars(base) for base in above[: above.index(torch.Tensor)]):
            raise GuardError(f"{name}: a {type(tensor).__name__} has no memory a kernel can read")
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise GuardError(f"{name}: expected a strided tensor on cpu, got {tensor.layout} on {tensor.device}")
    return with_values_in_memory(tensor)


def descriptor(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return a memref descriptor as flat integers: allocated pointer, aligned pointer, offset, sizes, strides."""
    pointer = tensor.data_ptr()
    return (pointer, pointer, 0, *tensor.shape, *tensor.stride())
