"""Python arguments of ATen calls -> IR literals, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchstone.compiler.capture.symbolic.sizes import to_dim
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import DType, Named
from torchstone.compiler.ir.dims import Expr
from torchstone.compiler.ir.dtypes import BY_NAME

TO_TORCH: dict[DType, torch.dtype] = {d: getattr(torch, n) for n, d in BY_NAME.items() if hasattr(torch, n)}
FROM_TORCH: dict[torch.dtype, DType] = {t: d for d, t in TO_TORCH.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """Return our dtype; Unsupported for quantized and sub-byte dtypes."""
    try:
        return FROM_TORCH[dtype]
    except KeyError:
        raise Unsupported(f"dtype {dtype}", stage="capture") from None


def to_literal(value: Any) -> Any:
    """Convert one argument that is no tensor; Unsupported for what the IR cannot hold (generators, storages, …)."""
    match value:
        case None | bool() | int() | float() | complex() | str():
            return value
        case torch.dtype():
            return dtype_of(value)
        case torch.device():
            return Named("device", str(value))
        case torch.layout():
            return Named("layout", str(value).removeprefix("torch."))
        case torch.memory_format():
            return Named("memory_format", str(value).removeprefix("torch."))
        case torch.SymInt():
            return to_dim(value)
        case list() | tuple():
            return tuple(to_literal(v) for v in value)
    raise Unsupported(f"an argument of class {type(value).__name__}", stage="capture")


def from_literal(value: Any, size: Callable[[Expr], Any]) -> Any:
    """Convert a literal back to what PyTorch takes; ``size`` turns a symbolic size into an int or a SymInt."""
    match value:
        case DType():
            return TO_TORCH[value]
        case Named(kind="device", value=name):
            return torch.device(name)
        case Named(value=name):
            return getattr(torch, name)
        case Expr():
            return size(value)
        case tuple():
            return [from_literal(v, size) for v in value]
    return value
