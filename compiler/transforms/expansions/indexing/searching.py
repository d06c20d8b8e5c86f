"""Finding places among ordered boundaries: searchsorted, bucketize, histograms.

Binary search goes step by step as in eager, so that unordered and NaN boundaries give what they give there. Histograms:
aten/src/ATen/native/cpu/HistogramKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import DType, Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, ordered, tensor
from torchstone.compiler.transforms.expansions.core.creation import spaced
from torchstone.compiler.transforms.expansions.core.ordering import pick
from torchstone.compiler.transforms.expansions.indexing.index import bound, checked, flattened, read
from torchstone.compiler.transforms.promotion import result_type
from torchstone.compiler.transforms.rules import Expander, expands

_MOST_STEPS = 40  # more boundaries than 2**40 no machine holds


def _search(b: Expander, boundaries: Value, x: Value, *, right: bool, sorter: Value | None = None) -> Value:
    """Where each ``x`` goes into the last dim of ``boundaries``, which are 1-d or have the other dims of ``x``."""
    size = boundaries.shape[-1]
    start = b.full(0, x.shape, dt.int64)
    if 0 in x.shape or size == 0:
        return start
    common = result_type(boundaries, x)
    boundaries, x = (b.cast(v, common) for v in (boundaries, x))
    boundaries, x = (b.cast(v, ordered(v)) for v in (boundaries, x))

    def at(source: Value, place: Value) -> Value:
        return read(b, source, [place], [0]) if source.rank == 1 else pick(b, source, place, source.rank - 1)

    def boundary(place: Value) -> Value:
        return at(boundaries, place if sorter is None else at(sorter, place))

    end, one = bound(b, start, size), const(b, start, 1)
    for _ in range(size.bit_length() if isinstance(size, int) else _MOST_STEPS):
        middle = b.add(start, b.shift_right(b.sub(end, start), one))
        searching = b.lt(start, end)
        left = b.and_(searching, (b.gt if right else b.ge)(boundary(middle), x))
        start = b.select(b.xor(searching, left), b.add(middle, one), start)
        end = b.select(left, middle, end)
    return start


@expands("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    b: Expander, boundaries: Value, x: Any, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Value | None = None,
) -> Value:  # fmt: skip
    if not isinstance(x, Value):
        x = tensor(b, x, result_type(boundaries, x))
    if sorter is not None:
        sorter = checked(b, sorter, boundaries.shape[-1], "torch.searchsorted(): sorter index out of range")
    return b.cast(_search(b, boundaries, x, right=right or side == "right", sorter=sorter), b.type.dtype)


@expands("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(b: Expander, x: Any, boundaries: Value, out_int32: bool = False, right: bool = False) -> Value:
    return searchsorted(b, boundaries, x, out_int32, right)


# Histograms: each element's bin, then a scatter of ones or weights.


def _outer(b: Expander, x: Value, given: tuple[float, float] | None, margin: float, error: str) -> tuple[Value, Value]:
    """The outermost edges: those given, those of the data, or 0 and 1; equal ones moved apart by a margin. float64."""
    if given is not None and given[0] != given[1]:
        return b.scalar(given[0], dt.float64), b.scalar(given[1], dt.float64)
    if given is not None or 0 in x.shape:
        low, high = given or (0.0, 1.0)
        apart = margin if low == high else 0
        return b.scalar(low - apart, dt.float64), b.scalar(high + apart, dt.float64)
    low, high = (b.cast(b.reduce(x, kind, tuple(range(x.rank))), dt.float64) for kind in ("min", "max"))
    infinity = const(b, low, math.inf)
    b.emit("check", b.and_(b.lt(b.abs(low), infinity), b.lt(b.abs(high), infinity)), message=error)
    same = b.eq(low, high)
    apart = const(b, low, margin)
    return b.select(same, b.sub(low, apart), low), b.select(same, b.add(high, apart), high)


def _edges(b: Expander, outer: tuple[Value, Value], bins: int, dtype: DType) -> Value:
    low, high = (b.cast(v, dtype) for v in outer)
    return spaced(b, low, high, bins + 1, fused=True)


def _bin(b: Expander, x: Value, edges: Value, *, linear: bool, local: bool) -> Value:
    """The bin of each element of a 1-d tensor: each begins at its edge, the last also has its end. -1 is none.

    With ``linear`` edges by division, and then, with ``local``, by looking at the edges beside that place.
    """
    bins = edges.shape[0] - 1
    low, high = (b.broadcast(b.slice(edges, 0, at, at + 1), x.shape) for at in (0, bins))
    if linear:
        ratio = b.div(b.mul(b.sub(x, low), b.cast(bound(b, x, bins), x.dtype)), b.sub(high, low))
        place = b.cast(ratio, dt.int64)
    else:
        place = b.sub(_search(b, edges, x, right=True), b.full(1, x.shape, dt.int64))
    if local:  # of the edges around, in order by construction, how many are not above
        near = [b.add(place, const(b, place, by)) for by in (-1, 0, 1)]
        place = b.sub(place, const(b, place, 2))
        for edge in (read(b, edges, [i], [0]) for i in near):
            place = b.add(place, b.cast(b.le(edge, x), dt.int64))
    place = b.min(place, const(b, place, bins - 1))
    return b.select(b.and_(b.ge(x, low), b.le(x, high)), place, const(b, place, -1))


def _count(b: Expander, x: Value, edges: Sequence[Value], weight: Value | None, **how: bool) -> Value:
    """The histogram of the rows of a matrix, one dim for each column."""
    columns = (b.reshape(b.slice(x, 1, d, d + 1), (x.shape[0],)) for d in range(len(edges)))
    total, *places = (_bin(b, column, axis, **how) for column, axis in zip(columns, edges, strict=True))
    inside = b.ge(total, const(b, total, 0))
    for place, axis in zip(places, edges[1:], strict=True):
        inside = b.and_(inside, b.ge(place, const(b, place, 0)))
        total = b.add(b.mul(total, bound(b, total, axis.shape[0] - 1)), place)
    total = b.select(inside, total, const(b, total, -1))
    shape = tuple(axis.shape[0] - 1 for axis in edges)
    zeros = b.full(0.0, (product(shape),), x.dtype)
    ones = b.full(1.0, total.shape, x.dtype) if weight is None else flattened(b, weight)
    return b.reshape(b.emit("scatter", zeros, ones, total, dims=(0,), kind="add")[0], shape)


def _density(b: Expander, counts: Value, edges: Sequence[Value]) -> Value:
    total = b.reduce(counts, "sum", tuple(range(counts.rank)))
    counts = b.div(counts, b.broadcast(total, counts.shape, ()))
    for d, axis in enumerate(edges):
        size = axis.shape[0]
        widths = b.sub(b.slice(axis, 0, 1, size), b.slice(axis, 0, 0, size - 1))
        counts = b.div(counts, b.broadcast(widths, counts.shape, (d,)))
    return counts


def _rows(b: Expander, x: Value, columns: int) -> Value:
    return b.reshape(x, (product(x.shape) if columns == 1 else product(x.shape[:-1]), columns))


def _ranged(b: Expander, rows: Value, bins: Sequence[int], given: Sequence[float] | None) -> list[Value]:
    """Edges for every column of a matrix; ``given`` are the outermost ones in pairs."""
    edges = []
    for d, count in enumerate(bins):
        pair = (given[2 * d], given[2 * d + 1]) if given else None
        column = b.slice(rows, 1, d, d + 1)
        outer = _outer(b, column, pair, 0.5, f"torch.histogramdd: dimension {d}'s range is not finite")
        edges.append(_edges(b, outer, count, rows.dtype))
    return edges


@expands("aten.histc.default")
def histc(b: Expander, x: Value, bins: int = 100, low: Any = 0, high: Any = 0) -> Value:
    """Counts in evenly spaced bins from ``low`` to ``high``, or over the range of the elements when these are equal."""
    rows = _rows(b, x, 1)
    whole = low == high and 0 not in x.shape
    outer = _outer(
        b, rows, None if whole else (float(low), float(high)), 1.0, "torch.histc: the range of the data is not finite"
    )
    return _count(b, rows, [_edges(b, outer, bins, x.dtype)], None, linear=True, local=False)


@expands("aten.histogram.bin_ct")
def histogram(
    b: Expander, x: Value, bins: int = 100, range: Any = None, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    rows = _rows(b, x, 1)
    edges = _ranged(b, rows, [bins], range)
    counts = _count(b, rows, edges, weight, linear=True, local=True)
    return _density(b, counts, edges) if density else counts, edges[0]


@expands("aten.histogram.bins_tensor")
def histogram_of_edges(
    b: Expander, x: Value, edges: Value, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    counts = _count(b, _rows(b, x, 1), [edges], weight, linear=False, local=False)
    return _density(b, counts, [edges]) if density else counts, edges


@expands("aten._histogramdd_bin_edges.default")
def histogramdd_edges(
    b: Expander, x: Value, bins: Sequence[int], range: Any = None, weight: Value | None = None, density: bool = False
) -> tuple[Value, ...]:
    return tuple(_ranged(b, _rows(b, x, len(bins)), bins, range))


@expands("aten._histogramdd_from_bin_cts.default")
def histogramdd_of_counts(
    b: Expander, x: Value, bins: Sequence[int], range: Any = None, weight: Value | None = None, density: bool = False
) -> Value:
    rows = _rows(b, x, len(bins))
    edges = _ranged(b, rows, bins, range)
    counts = _count(b, rows, edges, weight, linear=True, local=True)
    return _density(b, counts, edges) if density else counts


@expands("aten._histogramdd_from_bin_tensors.default")
def histogramdd_of_edges(
    b: Expander, x: Value, edges: Sequence[Value], weight: Value | None = None, density: bool = False
) -> Value:
    counts = _count(b, _rows(b, x, len(edges)), edges, weight, linear=False, local=False)
    return _density(b, counts, edges) if density else counts
