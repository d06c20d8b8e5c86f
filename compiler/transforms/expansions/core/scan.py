"""Cumulative ops: ``flat.scan``, or prefixes combined by doubling where it has no kind for them."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import (
    const,
    convert_number,
    is_nan,
    loop,
    ordered,
    size_value,
    wrap_dim,
)
from torchstone.compiler.transforms.expansions.core.elementwise import complex_log_add
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


def _cumulative(kind: str):
    def rule(b: Expander, x: Value, dim: int, dtype: DType | None = None) -> Value:
        x = b.cast(b.cast(x, b.type.dtype), opmath(b.type.dtype))
        out = b.scan(x, kind=kind, dim=wrap_dim(dim, x.rank)) if x.rank and 0 not in x.shape else x
        return b.cast(out, b.type.dtype)

    return rule


expands.row("aten.cumsum.default", _cumulative("sum"))
expands.row("aten.cumprod.default", _cumulative("prod"))


def _extreme(kind: str):
    """The largest or smallest so far and its index: the last of equals; a NaN stays, the last one's index."""
    relation = {"max": "ge", "min": "le"}[kind]

    def rule(b: Expander, x: Value, dim: int) -> tuple[Value, Value]:
        if not x.rank or 0 in x.shape:
            return x, b.full(0, x.shape, dt.int64)
        dim = wrap_dim(dim, x.rank)
        value = b.cast(x, ordered(x))
        best = b.scan(value, kind=kind, dim=dim)
        here = getattr(b, relation)(value, best)
        here = b.or_(here, is_nan(b, value)) if value.dtype.is_float else here
        place = b.broadcast(b.iota(size=x.shape[dim], dtype=dt.int64), x.shape, (dim,))
        # The first element is the best so far, so that every place has a 0 at least.
        last = b.scan(b.select(here, place, const(b, place, 0)), kind="max", dim=dim)
        return b.cast(best, x.dtype), last

    return rule


expands.row("aten.cummax.default", _extreme("max"))
expands.row("aten.cummin.default", _extreme("min"))


@expands("aten.logcumsumexp.default")
def logcumsumexp(b: Expander, x: Value, dim: int) -> Value:
    """log of the cumulative sum of e**x: after step k each element is combined with the 2**k before it."""
    out = b.cast(x, opmath(x.dtype))
    dim = wrap_dim(dim, x.rank)
    if 0 in x.shape or not x.rank:
        return x
    if x.dtype.is_complex:
        out = _log_add_in_order(b, out, dim)
    elif not isinstance(size := x.shape[dim], int):
        out = _log_add_all(b, out, dim)
    else:
        step = 1
        while step < size:
            out = _log_add(b, _shifted(b, out, dim, step, -math.inf), out)
            step *= 2
    return b.cast(out, b.type.dtype)


def _log_add_all(b: Expander, x: Value, dim: int) -> Value:
    """The same for a length known at run time."""

    def more(b: Expander, step: Value, out: Value) -> Value:
        return b.lt(step, size_value(b, out.shape[dim]))

    def double(b: Expander, step: Value, out: Value) -> tuple[Value, Value]:
        place = b.iota(size=out.shape[dim], dtype=dt.int64)
        place = b.sub(place, b.broadcast(step, place.shape))
        zero = const(b, place, 0)
        earlier = _taken(b, out, b.max(place, zero), dim)
        none = b.broadcast(b.lt(place, zero), out.shape, (dim,))
        return b.add(step, step), _log_add(b, b.select(none, const(b, out, -math.inf), earlier), out)

    return loop(b, more, double, (b.scalar(1, dt.int64), x), ())[1]


def _log_add_in_order(b: Expander, x: Value, dim: int) -> Value:
    """Complex numbers one after the other: the order decides how often the sum goes round 0."""
    rest = tuple(size for d, size in enumerate(x.shape) if d != dim)

    def more(b: Expander, k: Value, total: Value, out: Value, x: Value) -> Value:
        return b.lt(k, size_value(b, x.shape[dim]))

    def add(b: Expander, k: Value, total: Value, out: Value, x: Value) -> tuple[Value, ...]:
        one = b.reshape(k, (1,))
        total = complex_log_add(b, b.reshape(_taken(b, x, one, dim), rest), total)
        place = b.broadcast(b.iota(size=x.shape[dim], dtype=dt.int64), x.shape, (dim,))
        others = tuple(d for d in range(x.rank) if d != dim)
        out = b.select(b.eq(place, b.broadcast(k, x.shape)), b.broadcast(total, x.shape, others), out)
        return b.add(k, const(b, k, 1)), total, out

    start = b.full(complex(-math.inf), rest, x.dtype)
    return loop(b, more, add, (b.scalar(0, dt.int64), start, x), (x,))[2]


def _taken(b: Expander, x: Value, places: Value, dim: int) -> Value:
    """The elements at places along a dim."""
    out = b.gather(x, places, dims=(dim,))
    order = [*range(1, x.rank)]
    order.insert(dim, 0)
    return b.transpose(out, tuple(order))


def _shifted(b: Expander, x: Value, dim: int, step: int, identity: Any) -> Value:
    """Move every element ``step`` places on; what comes in is the identity."""
    rest = b.slice(x, dim, 0, x.shape[dim] - step)
    low = tuple(step if d == dim else 0 for d in range(x.rank))
    padding = b.scalar(convert_number(identity, x.dtype), x.dtype)
    return b.emit("pad", rest, padding, low=low, high=(0,) * x.rank)[0]


def _log_add(b: Expander, x: Value, y: Value) -> Value:
    """log(e**x + e**y) = max + log(1 + e**(min - max)); equal infinities are their own sum."""
    high, low = b.max(x, y), b.min(x, y)
    out = b.add(high, b.log1p(b.exp(b.sub(low, high))))
    same_infinity = b.and_(b.eq(high, low), b.eq(b.abs(high), const(b, high, math.inf)))
    return b.select(same_infinity, high, out)
