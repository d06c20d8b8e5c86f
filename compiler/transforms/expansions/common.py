"""What the expansions share: operands brought to one dtype and shape, dims made positive, sizes as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchstone.compiler.ir import DType, Expr, Graph, Operation, Shape, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, dim_min, nonnegative
from torchstone.compiler.ir.graph import print_literal
from torchstone.compiler.transforms.promotion import opmath, result_type
from torchstone.compiler.transforms.rules import Expander, expands

Fn = Callable[..., Value]


def tensor(b: Expander, x: Any, dtype: DType) -> Value:
    """Return a value of this dtype for a tensor, a Python number or a run-time size (0-d)."""
    if isinstance(x, Value):
        return b.cast(x, dtype)
    if isinstance(x, Expr):
        return b.cast(size_value(b, x), dtype)
    if isinstance(x, float) and not math.isfinite(x) and not (dtype.is_float or dtype.is_complex):
        return b.cast(b.scalar(x, dt.float64), dtype)  # what comes of it depends on the machine, as of any tensor's
    return b.scalar(convert_number(x, dtype), dtype)


def convert_number(x: Any, dtype: DType) -> Any:
    """Convert a Python number to the Python class of a dtype's elements, as casting a 0-d tensor would."""
    if dtype.is_complex:
        return complex(x)
    if dtype.is_bool:
        return bool(x)
    real = x.real if isinstance(x, complex) else x
    if dtype.is_float:
        return float(real)
    if not math.isfinite(real):
        raise ValueError(f"{x} is no {dtype}")
    bits = int(real) & ((1 << dtype.bits) - 1)
    return bits - (1 << dtype.bits) if dtype.is_signed and bits >> (dtype.bits - 1) else bits


def size_value(b: Expander, size: Dim) -> Value:
    """Return an int64[] holding a size: a symbol, or a division, is the number of elements of a tensor that long."""
    if isinstance(size, int):
        return b.scalar(size, dt.int64)
    total: Value | None = None
    for atoms, coefficient in size.terms:
        term = b.scalar(coefficient, dt.int64)
        for atom in atoms:
            ones = b.full(1, (Expr((((atom,), 1),)),), dt.int64)
            term = b.mul(term, b.reduce(ones, "sum", (0,)))
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def pointwise(b: Expander, fn: Fn, *operands: Any, dtype: DType | None = None, once: bool = True) -> Value:
    """Compute ``fn`` elementwise with eager's rules and give the op's result type.

    Operands are converted to ``dtype`` (default: the result's) and broadcast to the result's shape; what ``fn`` returns
    is cast to the result's dtype. When 16-bit floats are rounded ``once``, ``fn`` computes in float32, and Python
    numbers go there directly, without a rounding to 16 bits.
    """
    common = dtype or b.type.dtype
    compute = opmath(common) if once else common
    converted = (b.cast(x, common) if isinstance(x, Value) else x for x in operands)
    return _computed(b, fn, compute, converted)


def arithmetic(b: Expander, fn: Fn, *operands: Any) -> Value:
    """``pointwise`` for + - * /, where eager takes 0-d tensors, as it takes numbers, in the compute dtype unrounded."""
    common = b.type.dtype
    converted = (b.cast(x, common) if isinstance(x, Value) and x.rank else x for x in operands)
    return _computed(b, fn, opmath(common), converted)


def _computed(b: Expander, fn: Fn, compute: DType, operands: Iterable[Any]) -> Value:
    values = [b.broadcast(tensor(b, x, compute), b.type.dims) for x in operands]
    return b.cast(fn(*values), b.type.dtype)


def stepwise(b: Expander, fn: Fn, *operands: Any, dtype: DType | None = None) -> Value:
    """``pointwise`` for ops that eager computes in the dtype itself, rounding operands and every step to it."""
    return pointwise(b, fn, *operands, dtype=dtype, once=False)


def exact(b: Expander, fn: Fn, *operands: Any) -> Value:
    """``pointwise`` with every operand rounded to the result's dtype first: for functions that jump, as floor does."""
    return pointwise(b, fn, *(tensor(b, x, b.type.dtype) for x in operands))


def ordered(x: Value) -> DType:
    """The dtype to compare values of ``x`` in: bools are compared as numbers."""
    return dt.uint8 if x.dtype.is_bool else x.dtype


def compare(b: Expander, relation: str, x: Any, y: Any) -> Value:
    """Compare in the promoted dtype, broadcast to the result's shape; a bool value."""
    common = result_type(x, y)
    x, y = (b.broadcast(tensor(b, v, common), b.type.dims) for v in (x, y))
    if common.is_bool and relation not in ("eq", "ne"):
        x, y = b.cast(x, dt.uint8), b.cast(y, dt.uint8)
    return getattr(b, relation)(x, y)


def loop(
    b: Expander, more: Fn, step: Callable[..., tuple[Value, ...]], carried: Sequence[Value], rest: Sequence[Value]
) -> tuple[Value, ...]:
    """``flat.while``: replace what is carried by ``step(b, *carried, *rest)`` while ``more(b, *carried, *rest)``."""

    def graph(name: str, fn: Callable[..., Any]) -> Graph:
        args = [Value(v.type, f"x{index}") for index, v in enumerate((*carried, *rest))]
        ops: list[Operation] = []
        out = fn(Expander(ops, b.op), *args)
        return Graph(name, args, ops, out if isinstance(out, tuple) else (out,))

    graphs = {"condition": graph("condition", more), "body": graph("body", step)}
    return b.emit("while", *carried, *rest, **graphs, carried=len(carried))


def zero_check(b: Expander, divisor: Value) -> None:
    """Raise at run time what eager raises when an integer is divided by 0."""
    nonzero = b.ne(divisor, b.full_like(divisor, 0))
    b.emit("check", b.reduce(nonzero, "and", tuple(range(divisor.rank))), message="ZeroDivisionError")


def is_nan(b: Expander, x: Value) -> Value:
    return b.ne(x, x)


def const(b: Expander, like: Value, value: Any) -> Value:
    """A number or a run-time size with the shape and dtype of ``like``; one rule's equal constants are one."""
    if isinstance(value, Value):
        raise b.unsupported("a number known at run time only")
    if isinstance(value, Expr):
        return b.broadcast(b.cast(size_value(b, value), like.dtype), like.shape, ())
    made: dict[Any, Value] = b.__dict__.setdefault("_constants", {})
    key = (print_literal(value), like.shape, like.dtype)  # the text tells 0.0 from -0.0 and finds NaN again
    if key not in made:
        made[key] = b.full_like(like, convert_number(value, like.dtype))
    return made[key]


def wrap_dim(dim: int, rank: int) -> int:
    """Return a dim counted from the front; a 0-d tensor has one dim to name, as in PyTorch."""
    return dim + max(rank, 1) if dim < 0 else dim


def wrap_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return sorted positive dims; None or none at all means every dim. A 0-d tensor has no dims to give."""
    if dims is None or dims == () or dims == []:
        return tuple(range(rank))
    dims = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(wrap_dim(d, rank) for d in dims)) if rank else ()


def keep_dims(shape: Shape, dims: Iterable[int]) -> tuple[Dim, ...]:
    """Return ``shape`` with size 1 at ``dims``."""
    dims = tuple(dims)
    return tuple(1 if d in dims else size for d, size in enumerate(shape))


def expand_dims(b: Expander, reduced: Value, shape: Shape, dims: Sequence[int]) -> Value:
    """Repeat a value reduced over ``dims`` back to ``shape``."""
    kept = tuple(d for d in range(len(shape)) if d not in dims)
    return b.broadcast(reduced, shape, kept)


def slice_start(index: Dim | None, size: Dim) -> Dim:
    """Return where a slice begins: negative from the end, clamped to [0, size] when that can be decided."""
    index = 0 if index is None else index
    if isinstance(index, int) and index < 0:
        index = index + size
    if isinstance(index, int) and isinstance(size, int):
        return min(max(index, 0), size)
    return index


def slice_dim(b: Expander, x: Value, dim: int, start: Dim | None, step: int, length: Dim) -> Value:
    """Slice ``length`` elements of ``dim`` from ``start`` (see ``slice_start``) on; PyTorch worked out the length."""
    size = x.shape[dim]
    start = slice_start(start, size)
    if start != 0 and not nonnegative(size - start - length * step):
        start = dim_min(start, size)  # eager's slice of nothing may begin past the end
    # At most this far: the last element's end, so that the bound never passes the size.
    limit = start if length == 0 else start + (length - 1) * step + 1
    return b.slice(x, dim, start, limit, step)


def unary_table(rows: Iterable[tuple[str, Fn]]) -> None:
    """Register ``aten.<name>.default`` of one tensor; ``fn(b, x)`` computes in the (float) result's compute dtype."""

    def rule(fn: Fn):
        return lambda b, x: pointwise(b, lambda v: fn(b, v), x)

    for name, fn in rows:
        expands.row(f"aten.{name}.default", rule(fn))
