"""Scans by doubling: after step k each element is combined with the 2**k before it. Sorts by comparing all pairs."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import product
from torchstone.compiler.transforms.legalizations.common import legalization
from torchstone.compiler.transforms.rules import Declined, Expander, legalizes

# Comparing everything with everything is for small programs.
MOST_PAIRS = 1 << 22

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@legalization("scan")
def scan(b: Expander, x: Value, *, kind: str, dim: int) -> Value:
    """log2(size) times: the elements moved 1, 2, 4, … places on, combined with those that are there."""
    size = x.shape[dim]
    if not isinstance(size, int):
        raise Declined
    nothing = b.scalar(identity(kind, x.dtype), x.dtype)
    none, step = (0,) * x.rank, 1
    while step < size and 0 not in x.shape:
        low = (*none[:dim], step, *none[dim + 1 :])
        (before,) = b.emit("pad", b.slice(x, dim, 0, size - step), nothing, low=low, high=none)
        (x,) = b.emit(_COMBINE[kind], before, x)
        step *= 2
    return x


def identity(kind: str, dtype: DType) -> Any:
    """Return the number that changes no other."""
    if kind in ("sum", "prod"):
        one = int(kind == "prod")
        return complex(one) if dtype.is_complex else float(one) if dtype.is_float else one
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    least = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return least if kind == "max" else least + (1 << dtype.bits) - 1


@legalizes("flat.sort")
def sort(b: Expander, x: Value, *, dim: int, descending: bool) -> tuple[Value, Value]:
    """Where an element belongs is how many come before it; what belongs at a place is the one with that number."""
    if not x.tensor.is_static:
        raise Declined
    if 0 in x.shape:
        return x, b.full(0, x.shape, dt.int64)
    order = (*(d for d in range(x.rank) if d != dim), dim)
    size = x.shape[dim]
    rows = product(x.shape) // size
    pairs = (rows, size, size)
    count = product(pairs)
    if not isinstance(count, int) or count > MOST_PAIRS:
        raise b.unsupported(f"{count} pairs of elements to compare, more than {MOST_PAIRS}")
    flat = b.reshape(b.transpose(x, order), (rows, size))
    key = b.cast(flat, dt.int32) if x.dtype.is_bool else flat
    here, other = b.broadcast(key, pairs, (0, 1)), b.broadcast(key, pairs, (0, 2))
    number = b.iota(size=size, dtype=dt.int64)
    first, second = b.broadcast(number, pairs, (1,)), b.broadcast(number, pairs, (2,))
    # Of equals the earlier one comes first.
    equal_first = b.and_(b.lt(second, first), b.not_(_precedes(b, here, other, descending)))
    ahead = b.or_(_precedes(b, other, here, descending), equal_first)
    place = b.reduce(b.cast(ahead, dt.int64), "sum", (2,))
    found = b.eq(b.broadcast(place, pairs, (0, 2)), first)
    indices = b.reduce(b.select(found, second, b.full_like(second, 0)), "sum", (2,))
    row = b.broadcast(b.iota(size=rows, dtype=dt.int64), (rows, size), (0,))
    values = b.gather(flat, row, indices, dims=(0, 1))
    shape, back = tuple(x.shape[d] for d in order), tuple(order.index(d) for d in range(x.rank))
    return b.transpose(b.reshape(values, shape), back), b.transpose(b.reshape(indices, shape), back)


def _precedes(b: Expander, x: Value, y: Value, descending: bool) -> Value:
    """Say whether x comes before an unequal y; NaN is the largest."""
    if descending:
        x, y = y, x
    less = b.lt(x, y)
    if not x.dtype.is_float:
        return less
    return b.or_(less, b.and_(b.ne(y, y), b.eq(x, x)))
