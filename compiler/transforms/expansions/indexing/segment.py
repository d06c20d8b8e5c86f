"""segment_reduce: runs of elements along a dim, given by their lengths or by where they begin and end, combined."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, is_nan, tensor, wrap_dim
from torchstone.compiler.transforms.expansions.indexing.index import bound, check_all, read, zeros
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

_BEGIN: dict[str, float] = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}
_KINDS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}
_NAMED_TWICE = {"amax": "max", "amin": "min"}


def _bounds(
    b: Expander, x: Value, lengths: Value | None, offsets: Value | None, axis: int, unsafe: bool
) -> tuple[Value, Value]:
    """Where each segment begins and ends, with the checks that eager makes or should."""
    size = x.shape[axis]
    if lengths is not None:
        lengths = b.cast(lengths, dt.int64)
        check_all(b, b.ge(lengths, const(b, lengths, 0)), "lengths contains negative value!")
        total = b.reduce(lengths, "sum", (axis,))
        fits = b.le if unsafe else b.eq
        check_all(b, fits(total, bound(b, total, size)), "the lengths do not sum to the size of the data")
        ends = b.scan(lengths, kind="sum", dim=axis)
        return b.sub(ends, lengths), ends
    if offsets is None:
        raise b.unsupported("neither lengths nor offsets")
    offsets = b.cast(offsets, dt.int64)
    count = offsets.shape[axis]
    starts, ends = b.slice(offsets, axis, 0, count - 1), b.slice(offsets, axis, 1, count)
    inside = b.and_(b.ge(starts, const(b, starts, 0)), b.le(ends, bound(b, ends, size)))
    # Eager reads beyond the data here.
    check_all(b, b.and_(inside, b.le(starts, ends)), "offsets must rise from 0 to the size of the data")
    return starts, ends


@expands("aten.segment_reduce.default")
def segment_reduce(
    b: Expander, x: Value, reduce: str, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Value:  # fmt: skip
    """Rounded to the dtype at each step. An empty segment is what it begins with; the mean of nothing is NaN."""
    axis, reduce = wrap_dim(axis, x.rank), _NAMED_TWICE.get(reduce, reduce)
    starts, ends = _bounds(b, x, lengths, offsets, axis, unsafe)
    begin = tensor(b, _BEGIN[reduce] if initial is None else initial, x.dtype)
    out = b.broadcast(begin, b.type.dims, ())
    if 0 not in x.shape and 0 not in out.shape:
        out = write(b, out, x, _places(b, x, starts, ends, axis), range(axis + 1), _KINDS[reduce])
    if reduce != "mean":
        return out
    compute = opmath(x.dtype)
    counts = b.broadcast(b.cast(b.sub(ends, starts), compute), out.shape, tuple(range(axis + 1)))
    mean = b.cast(b.div(b.cast(out, compute), counts), x.dtype)
    nothing = out if initial is not None else const(b, out, math.nan)
    return b.select(b.eq(counts, const(b, counts, 0)), nothing, mean)


def _places(b: Expander, x: Value, starts: Value, ends: Value, axis: int) -> list[Value]:
    """The segment each element along ``axis`` is in: how many have ended. Elements in none are dropped."""
    shape = x.shape[: axis + 1]

    def along(like: Value) -> list[Value]:
        iota = (b.iota(size=size, dtype=dt.int64) for size in like.shape)
        return [b.broadcast(v, like.shape, (d,)) for d, v in enumerate(iota)]

    marks = write(
        b, zeros(b, shape, dt.int64), const(b, ends, 1), [*along(ends)[:-1], ends], range(axis + 1), "add"
    )  # fmt: skip
    ended = b.scan(marks, kind="sum", dim=axis)
    *lead, position = along(marks)
    first = b.broadcast(b.slice(starts, axis, 0, 1), shape)
    return [*lead, b.select(b.lt(position, first), const(b, ended, -1), ended)]


@expands("aten._segment_reduce_backward.default")
def segment_reduce_backward(
    b: Expander, grad: Value, out: Value, x: Value, reduce: str, lengths: Value | None = None,
    offsets: Value | None = None, axis: int = 0, initial: Any = None,
) -> Value:  # fmt: skip
    """What a segment gets goes to all its elements, or to those that are its maximum; 0 for elements in none."""
    axis, reduce = wrap_dim(axis, x.rank), _NAMED_TWICE.get(reduce, reduce)
    starts, ends = _bounds(b, x, lengths, offsets, axis, unsafe=True)
    zero = zeros(b, x.shape, x.dtype)
    if 0 in x.shape or 0 in grad.shape:
        return zero
    places, dims, compute = _places(b, x, starts, ends, axis), range(axis + 1), opmath(x.dtype)

    def of_segment(v: Value) -> Value:
        return b.cast(read(b, v, places, dims), compute)

    above = of_segment(grad)
    given = b.broadcast(_within(b, places[-1], ends.shape[axis]), x.shape, tuple(dims))
    if reduce == "mean":
        above = b.div(above, b.broadcast(of_segment(b.sub(ends, starts)), x.shape, tuple(dims)))
    if reduce in ("max", "min"):
        best = b.or_(b.eq(x, b.cast(of_segment(out), x.dtype)), is_nan(b, x))
        equals = write(b, zeros(b, out.shape, dt.int64), b.cast(best, dt.int64), places, dims, "add")
        count = of_segment(equals)
        # Equal elements share a positive gradient; a negative one eager gives to each in full.
        shared = b.and_(b.gt(count, const(b, count, 1)), b.gt(above, const(b, above, 0)))
        above = b.select(shared, b.div(above, count), above)
        given = b.and_(given, best)
    if reduce == "prod":
        begin = b.broadcast(tensor(b, 1.0 if initial is None else initial, compute), out.shape, ())
        above = _product_of_others(b, x, above, of_segment(out), begin, places, dims)
    return b.select(given, b.cast(above, x.dtype), zero)


def _product_of_others(
    b: Expander, x: Value, above: Value, product: Value, begin: Value, places: list[Value], dims: range
) -> Value:
    """The gradient of a product: by a division, but where the element is 0 or NaN the other elements multiplied."""
    x = b.cast(x, product.dtype)
    none, unknown = b.eq(x, const(b, x, 0)), is_nan(b, x)
    bad = b.or_(none, unknown)

    def others(here: Value) -> Value:
        """Whether the segment has such an element beside this one."""
        ones = b.cast(here, dt.int64)
        total = read(b, write(b, zeros(b, begin.shape, dt.int64), ones, places, dims, "add"), places, dims)
        return b.gt(b.sub(total, ones), const(b, ones, 0))

    rest = read(b, write(b, begin, b.select(bad, const(b, x, 1), x), places, dims, "mul"), places, dims)
    rest = b.select(others(none), b.mul(rest, const(b, x, 0)), rest)
    rest = b.select(others(unknown), const(b, x, math.nan), rest)
    return b.select(bad, b.mul(above, rest), b.div(b.mul(above, product), x))


def _within(b: Expander, segment: Value, count: Dim) -> Value:
    return b.and_(b.ge(segment, const(b, segment, 0)), b.lt(segment, bound(b, segment, count)))
