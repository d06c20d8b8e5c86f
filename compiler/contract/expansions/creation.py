"""Tensors made from nothing: fills, ranges, eye, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchstone.compiler.contract.expansions.common import convert_number, tensor
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt

# A range up to this long is computed here, in float64 as eager does, and written as a constant.
LONGEST_CONSTANT = 4096


def fill(b: Expander, value: Any) -> Value:
    """The result's type filled with a number or a 0-d tensor."""
    return b.broadcast(tensor(b, value, b.type.dtype), b.type.dims, ())


@expands("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default")
def zeros(b: Expander, *_: Any) -> Value:
    return fill(b, 0)


@expands("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(b: Expander, *_: Any) -> Value:
    return fill(b, 1)


@expands(
    "aten.full.default", "aten.full_like.default", "aten.new_full.default", "aten.fill.Scalar", "aten.fill.Tensor"
)  # fmt: skip
def full(b: Expander, *arguments: Any) -> Value:
    """The value follows the size, after the tensor that a ``new_`` op takes."""
    return fill(b, arguments[2 if b.op.name.startswith("aten.new_") else 1])


@expands("aten.scalar_tensor.default")
def scalar_tensor(b: Expander, value: Any, *_: Any) -> Value:
    return fill(b, value)


# Ranges.


def _sequence(b: Expander, at: Callable[[int], Any], length: int) -> Value:
    return b.emit(
        "constant", value=tuple(convert_number(at(i), b.type.dtype) for i in range(length)), shape=(length,),
        dtype=b.type.dtype,
    )[0]  # fmt: skip


@expands("aten.arange.default")
def arange(b: Expander, end: Any, *_: Any) -> Value:
    return _arange(b, 0, 1)


@expands("aten.arange.start")
def arange_start(b: Expander, start: Any, end: Any, *_: Any) -> Value:
    return _arange(b, start, 1)


@expands("aten.arange.start_step")
def arange_start_step(b: Expander, start: Any, end: Any, step: Any = 1, *_: Any) -> Value:
    return _arange(b, start, step)


def _arange(b: Expander, start: Any, step: Any) -> Value:
    """start + i * step, computed in int64 or float64 (eager's accumulation dtypes) and then rounded."""
    dtype, (length,) = b.type.dtype, b.type.dims
    if dtype.is_int:
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    if start == 0 and step == 1:
        return b.iota(size=length, dtype=dtype)
    fractional = any(isinstance(v, float) and not v.is_integer() for v in (start, step))
    if fractional and isinstance(length, int) and length <= LONGEST_CONSTANT:
        return _sequence(b, lambda i: start + step * i, length)
    compute = dt.float64 if fractional else dt.int64
    index = b.iota(size=length, dtype=compute)
    stepped = index if step == 1 else b.mul(index, b.broadcast(tensor(b, step, compute), index.shape, ()))
    return b.cast(b.add(stepped, b.broadcast(tensor(b, start, compute), index.shape, ())), dtype)


def _spaced(b: Expander, start: Any, end: Any, at: Callable[[Any], Any]) -> Value:
    """``at`` of evenly spaced numbers, from the nearer end, as eager computes them."""
    dtype, (length,) = b.type.dtype, b.type.dims
    if any(isinstance(v, Value) for v in (start, end)):
        raise b.unsupported("bounds that are tensors")
    if not isinstance(length, int) or length > LONGEST_CONSTANT:
        raise b.unsupported(f"more than {LONGEST_CONSTANT} steps")
    low, high = (convert_number(v, dtype) for v in (start, end))
    step = (high - low) / (length - 1) if length > 1 else 0.0

    def number(i: int) -> Any:
        return at(low if length == 1 else low + step * i if i < length // 2 else high - step * (length - i - 1))

    return _sequence(b, number, length)


@expands("aten.linspace.default")
def linspace(b: Expander, start: Any, end: Any, steps: int, *_: Any) -> Value:
    return _spaced(b, start, end, lambda v: v)


@expands("aten.logspace.default")
def logspace(b: Expander, start: Any, end: Any, steps: int, base: float = 10.0, *_: Any) -> Value:
    def power(v: Any) -> Any:
        try:
            return base**v
        except OverflowError:
            return math.inf

    return _spaced(b, start, end, power)


# Matrices by position.


def positions(b: Expander, shape: tuple[Any, ...]) -> tuple[Value, Value]:
    """Row and column number of each element of the last two dims, int64 of that shape."""
    rank = len(shape)
    row, column = (b.iota(size=shape[d], dtype=dt.int64) for d in (rank - 2, rank - 1))
    return b.broadcast(row, shape, (rank - 2,)), b.broadcast(column, shape, (rank - 1,))


@expands("aten.eye.default", "aten.eye.m")
def eye(b: Expander, *_: Any) -> Value:
    return b.cast(b.eq(*positions(b, b.type.dims)), b.type.dtype)


def _triangle(b: Expander, x: Value, diagonal: Any, relation: str) -> Value:
    row, column = positions(b, x.shape)
    offset = b.broadcast(tensor(b, diagonal, dt.int64), x.shape, ())
    keep = getattr(b, relation)(b.sub(column, row), offset)
    return b.select(keep, x, b.full_like(x, convert_number(0, x.dtype)))


@expands("aten.tril.default")
def tril(b: Expander, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, "le")


@expands("aten.triu.default")
def triu(b: Expander, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, "ge")


def _indices(b: Expander, rows: int, columns: int, inside: Callable[[int, int], bool]) -> Value:
    pairs = [(i, j) for i in range(rows) for j in range(columns) if inside(i, j)]
    flat = tuple(p[0] for p in pairs) + tuple(p[1] for p in pairs)
    return b.emit("constant", value=flat, shape=(2, len(pairs)), dtype=b.type.dtype)[0]


@expands("aten.tril_indices.default")
def tril_indices(b: Expander, rows: int, columns: int, offset: int = 0, *_: Any) -> Value:
    return _indices(b, rows, columns, lambda i, j: j - i <= offset)


@expands("aten.triu_indices.default")
def triu_indices(b: Expander, rows: int, columns: int, offset: int = 0, *_: Any) -> Value:
    return _indices(b, rows, columns, lambda i, j: j - i >= offset)


_UNDEFINED = (
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", "aten.empty_permuted.default",
)  # fmt: skip


@expands(*_UNDEFINED)
def empty(b: Expander, *_: Any) -> Value:
    """Memory nobody has written: there is no right answer to compare with. An empty tensor has none to ask for."""
    if 0 in b.type.dims:
        return fill(b, 0)
    raise b.unsupported("uninitialized memory has no defined values")
