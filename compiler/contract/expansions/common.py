"""What the expansions share: operands brought to one dtype and shape, dims made positive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander
from torchstone.compiler.ir import DType, Expr, Shape, Value
from torchstone.compiler.ir.dims import Dim


def tensor(b: Expander, x: Any, dtype: DType) -> Value:
    """Return a value of this dtype for a tensor or a Python number (0-d)."""
    if isinstance(x, Value):
        return b.cast(x, dtype)
    if isinstance(x, Expr):
        raise b.unsupported(f"a run-time size {x} used as a number")
    return b.scalar(convert_number(x, dtype), dtype)


def convert_number(x: Any, dtype: DType) -> Any:
    """Convert a Python number to the Python class of a dtype's elements, as casting a 0-d tensor would."""
    if dtype.is_bool:
        return bool(x)
    if dtype.is_int:
        x = int(x)
        x &= (1 << dtype.bits) - 1
        return x - (1 << dtype.bits) if dtype.is_signed and x >> (dtype.bits - 1) else x
    return complex(x) if dtype.is_complex else float(x)


def pointwise(b: Expander, fn: Callable[..., Value], *operands: Any, dtype: DType | None = None) -> Value:
    """Compute ``fn`` elementwise with eager's rules and give the op's result type.

    Operands (tensors or numbers) are cast to the compute dtype of ``dtype`` (default: the result's), broadcast to the
    result's shape, and what ``fn`` returns is cast to the result's dtype.
    """
    compute = opmath(dtype or b.type.dtype)
    values = [b.broadcast(tensor(b, x, compute), b.type.dims) for x in operands]
    return b.cast(fn(*values), b.type.dtype)


def wrap_dim(dim: int, rank: int) -> int:
    """Return a dim counted from the front; a 0-d tensor has one dim to name, as in PyTorch."""
    return dim + max(rank, 1) if dim < 0 else dim


def wrap_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return sorted positive dims; None or none at all means every dim. A 0-d tensor has no dims to give."""
    if dims is None or dims == ():
        return tuple(range(rank))
    dims = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(wrap_dim(d, rank) for d in dims)) if rank else ()


def keep_dims(shape: Shape, dims: Sequence[int]) -> tuple[Dim, ...]:
    """Return ``shape`` with size 1 at ``dims``."""
    return tuple(1 if d in dims else size for d, size in enumerate(shape))
