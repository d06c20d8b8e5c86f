"""Cumulative ops: prefixes combined by doubling, in log2(n) steps of shift and combine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from torchstone.compiler.contract.expansions.common import const, convert_number, is_nan, ordered, wrap_dim
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt


def _steps(b: Expander, x: Value, dim: int) -> Iterator[int]:
    """1, 2, 4, …: after each step a prefix is twice as long."""
    size = x.shape[dim]
    if not isinstance(size, int):
        raise b.unsupported("a run-time length")
    step = 1
    while step < size:
        yield step
        step *= 2


def _shifted(b: Expander, x: Value, dim: int, step: int, identity: Any) -> Value:
    """Move every element ``step`` places on; what comes in is the identity."""
    rest = b.slice(x, dim, 0, x.shape[dim] - step)
    low = tuple(step if d == dim else 0 for d in range(x.rank))
    padding = b.scalar(convert_number(identity, x.dtype), x.dtype)
    return b.emit("pad", rest, padding, low=low, high=(0,) * x.rank)[0]


def _scan(b: Expander, x: Value, dim: int, combine: Callable[[Value, Value], Value], identity: Any) -> Value:
    if x.rank and 0 not in x.shape:
        dim = wrap_dim(dim, x.rank)
        for step in _steps(b, x, dim):
            x = combine(_shifted(b, x, dim, step, identity), x)
    return b.cast(x, b.type.dtype)


@expands("aten.cumsum.default")
def cumsum(b: Expander, x: Value, dim: int, dtype: DType | None = None) -> Value:
    return _scan(b, b.cast(x, opmath(b.type.dtype)), dim, lambda before, x: b.add(before, x), 0)


@expands("aten.cumprod.default")
def cumprod(b: Expander, x: Value, dim: int, dtype: DType | None = None) -> Value:
    return _scan(b, b.cast(x, opmath(b.type.dtype)), dim, lambda before, x: b.mul(before, x), 1)


@expands("aten.logcumsumexp.default")
def logcumsumexp(b: Expander, x: Value, dim: int) -> Value:
    """log of the cumulative sum of e**x, by log(e**a + e**b) = max + log(1 + e**(min - max))."""
    if x.dtype.is_complex:
        raise b.unsupported("complex")

    def combine(before: Value, x: Value) -> Value:
        high, low = b.max(before, x), b.min(before, x)
        out = b.add(high, b.log1p(b.exp(b.sub(low, high))))
        same_infinity = b.and_(b.eq(high, low), b.eq(b.abs(high), const(b, high, math.inf)))
        return b.select(same_infinity, high, out)

    return _scan(b, b.cast(x, opmath(x.dtype)), dim, combine, -math.inf)


def _extreme(b: Expander, x: Value, dim: int, relation: str, identity: Any) -> tuple[Value, Value]:
    """The largest or smallest so far and its index: the last of equals; a NaN stays, the last one's index."""
    if not x.rank or 0 in x.shape:
        return x, b.full(0, x.shape, dt.int64)
    dim = wrap_dim(dim, x.rank)
    value = b.cast(x, ordered(x))
    index = b.broadcast(b.iota(size=x.shape[dim], dtype=dt.int64), x.shape, (dim,))
    for step in _steps(b, x, dim):
        before, place = _shifted(b, value, dim, step, identity), _shifted(b, index, dim, step, 0)
        later = getattr(b, relation)(value, before)
        if value.dtype.is_float:
            later = b.or_(is_nan(b, value), b.and_(b.not_(is_nan(b, before)), later))
        value, index = b.select(later, value, before), b.select(later, index, place)
    return b.cast(value, x.dtype), index


def _bounds(dtype: DType) -> tuple[Any, Any]:
    if dtype.is_float:
        return -math.inf, math.inf
    if dtype.is_bool:
        return 0, 1
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low, low + (1 << dtype.bits) - 1


@expands("aten.cummax.default")
def cummax(b: Expander, x: Value, dim: int) -> tuple[Value, Value]:
    return _extreme(b, x, dim, "ge", _bounds(x.dtype)[0])


@expands("aten.cummin.default")
def cummin(b: Expander, x: Value, dim: int) -> tuple[Value, Value]:
    return _extreme(b, x, dim, "le", _bounds(x.dtype)[1])
