"""Sorting, and what sorting answers: topk, kthvalue, median, mode.

Where equal elements could each be the answer PyTorch leaves open which index is given ("not necessarily the first
occurrence"), and eager's choice follows from its selection algorithm. Here it is the one of a stable sort.
"""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, is_nan, ordered, wrap_dim
from torchstone.compiler.transforms.expansions.core.reduction import convert_zero, finish
from torchstone.compiler.transforms.expansions.indexing.index import at_least_1d, flattened, places, read
from torchstone.compiler.transforms.rules import Expander, expands


def in_order(b: Expander, x: Value, dim: int, *, descending: bool = False) -> tuple[Value, Value]:
    """The elements of a tensor with at least one dim, stably sorted, and where each was."""
    if 0 in x.shape:
        return x, b.full(0, x.shape, dt.int64)
    values, indices = b.emit("sort", b.cast(x, ordered(x)), dim=dim, descending=descending)
    return b.cast(values, x.dtype), indices


def pick(b: Expander, x: Value, place: Value, dim: int) -> Value:
    """The element of ``x`` at each place along ``dim``; in the other dims, at the place in the index tensor itself."""
    return read(b, x, places(b, place, dim), range(x.rank))


def _nothing(b: Expander, x: Value) -> tuple[Value, Value]:
    """The results of an op that chooses among no elements, in as many places as the result has."""
    return b.full(convert_zero(x), b.type.dims, x.dtype), b.full(0, b.type.dims, dt.int64)


def _both(b: Expander, values: Value, indices: Value) -> tuple[Value, Value]:
    return finish(b, values), finish(b, indices, 1)


# Sorting: stably, whether asked to or not.


@expands("aten.sort.default")
def sort(b: Expander, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    wide = at_least_1d(b, x)
    return _both(b, *in_order(b, wide, wrap_dim(dim, wide.rank), descending=descending))


@expands("aten.sort.stable")
def stable_sort(
    b: Expander, x: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return sort(b, x, dim, descending)


@expands("aten.topk.default")
def topk(
    b: Expander, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """The first k in order, also when any order would do; of a 0-d tensor the one element, whatever k."""
    if not x.rank:
        return x, b.scalar(0, dt.int64)
    dim = wrap_dim(dim, x.rank)
    values, indices = in_order(b, x, dim, descending=largest)
    return b.slice(values, dim, 0, k), b.slice(indices, dim, 0, k)


@expands("aten.kthvalue.default")
def kthvalue(b: Expander, x: Value, k: Dim, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest, counted from 1."""
    if 0 in x.shape:
        return _nothing(b, x)
    x = at_least_1d(b, x)
    dim = wrap_dim(dim, x.rank)
    return _both(b, *(b.slice(v, dim, k - 1, k) for v in in_order(b, x, dim)))


# Medians: of an even number of elements the lower of the two in the middle.


def _median(b: Expander, x: Value, dim: int) -> tuple[Value, Value]:
    """Of values with a NaN, the first NaN."""
    values, indices = in_order(b, x, dim)
    size = x.shape[dim]
    middle = (size - 1) // 2
    value, index = (b.slice(v, dim, middle, middle + 1) for v in (values, indices))
    if not x.dtype.is_float:
        return value, index
    greatest = b.slice(values, dim, size - 1, size)
    first = b.reshape(b.arg_reduce(x, kind="argmax", dim=dim), greatest.shape)
    undefined = is_nan(b, greatest)
    return b.select(undefined, greatest, value), b.select(undefined, first, index)


def _nan_median(b: Expander, x: Value, dim: int) -> tuple[Value, Value]:
    """The median of the values that are not NaN, which come first in order; NaN when there are none."""
    if not x.dtype.is_float:
        return _median(b, x, dim)
    values, indices = in_order(b, x, dim)
    numbers = b.cast(b.eq(x, x), dt.int64)
    count = b.reduce(numbers, "sum", (dim,))
    count = b.reshape(count, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    middle = b.div(b.sub(count, const(b, count, 1)), const(b, count, 2))
    return pick(b, values, middle, dim), pick(b, indices, middle, dim)


def _medians(b: Expander, x: Value, dim: int | None) -> tuple[Value, Value]:
    rule = _nan_median if ".nanmedian." in b.op.name else _median
    if dim is None:
        return rule(b, flattened(b, x), 0)
    x = at_least_1d(b, x)
    return rule(b, x, wrap_dim(dim, x.rank))


@expands("aten.median.default", "aten.nanmedian.default")
def median(b: Expander, x: Value) -> Value:
    if 0 in x.shape:
        if not x.dtype.is_float:
            raise b.unsupported("no elements of an integer dtype: eager converts NaN")
        return b.full(math.nan, (), x.dtype)
    return finish(b, _medians(b, x, None)[0])


@expands("aten.median.dim", "aten.nanmedian.dim")
def median_dim(b: Expander, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _nothing(b, x) if 0 in x.shape else _both(b, *_medians(b, x, dim))


@expands("aten.mode.default")
def mode(b: Expander, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent value, the smallest of several, and its last index. A NaN equals nothing, and comes last.

    In order, equal values form runs: the number of elements since a run began is largest at the end of the longest.
    """
    if 0 in x.shape:
        return _nothing(b, x)
    x = at_least_1d(b, x)
    dim = wrap_dim(dim, x.rank)
    size = x.shape[dim]
    values, indices = in_order(b, x, dim)
    place = b.broadcast(b.iota(size=size, dtype=dt.int64), x.shape, (dim,))
    if size != 1:
        new = b.ne(b.slice(values, dim, 1, size), b.slice(values, dim, 0, size - 1))
        low = tuple(int(d == dim) for d in range(x.rank))
        new = b.emit("pad", new, b.scalar(False, dt.boolean), low=low, high=(0,) * x.rank)[0]
        start = b.scan(b.select(new, place, const(b, place, 0)), kind="max", dim=dim)
        place = b.sub(place, start)
    longest = b.arg_reduce(place, kind="argmax", dim=dim)
    longest = b.reshape(longest, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return _both(b, pick(b, values, longest, dim), pick(b, indices, longest, dim))
