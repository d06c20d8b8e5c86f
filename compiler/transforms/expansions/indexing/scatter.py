"""Writing at computed places: index_put, scatter, put, index_add and their kin, masked and diagonal scatter.

Eager writes one update after the other, so the last of several to one place stays. 16-bit floats round at each step or
are summed in float32, as eager's kernel for the op does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import dim_max, dim_min
from torchstone.compiler.transforms.expansions.common import const, convert_number, tensor, wrap_dim
from torchstone.compiler.transforms.expansions.core.elementwise import floor_divide
from torchstone.compiler.transforms.expansions.core.reduction import broadcast_shape
from torchstone.compiler.transforms.expansions.indexing.index import (
    Advanced,
    at_least_1d,
    checked,
    flattened,
    indices_for_masks,
    inverse,
    is_mask,
    places,
    read,
    to_front,
    wrapped,
    zeros,
)
from torchstone.compiler.transforms.expansions.linalg.masks import Hits
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# On bools, sums are "or" and products "and".
_ON_BOOLS = {"add": "max", "mul": "min"}


def write(
    b: Expander, x: Value, updates: Value, indices: Sequence[Value], dims: Sequence[int], kind: str, wide: bool = False
) -> Value:
    """``flat.scatter``; ``wide`` combines 16-bit floats in float32 and rounds once."""
    dtype, compute = x.dtype, opmath(x.dtype) if wide and kind != "set" else x.dtype
    if dtype.is_bool and kind != "set":
        compute, kind = dt.uint8, _ON_BOOLS.get(kind, kind)
    x, updates = b.cast(x, compute), b.cast(updates, compute)
    out = b.emit("scatter", x, updates, *indices, dims=tuple(dims), kind=kind)[0]
    return b.cast(out, dtype)


# index_put


@expands("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: Expander, x: Value, indices: tuple[Value | None, ...], values: Value, accumulate: bool = False
) -> Value:
    given = [i for i in indices if i is not None]
    if not given:
        raise b.unsupported("no index at all")
    if values.dtype != x.dtype:
        # One number where one mask holds is a fill, for which eager converts; for all others it wants one dtype.
        if accumulate or len(given) > 1 or not is_mask(given[0]) or product(values.shape) != 1:
            raise b.unsupported(f"values of {values.dtype} written to {x.dtype}, which eager refuses")
        values = b.cast(values, x.dtype)
    made: Sequence[Value] = ()
    replaced: Sequence[Value | None] = indices
    if any(is_mask(i) for i in given):
        if len(given) == 1:
            return _put_where(b, x, given[0], indices.index(given[0]), values, accumulate)
        shape = broadcast_shape(*(i for i in given if not is_mask(i)))
        if not shape or shape[-1] == 1:
            return _put_beside(b, x, indices, values, accumulate)
        made, replaced = indices_for_masks(b, indices, shape[-1])
    at = Advanced(b, x, replaced, inside=made)
    if 0 in at.shape:
        return x
    updates = b.transpose(b.broadcast(values, at.shape), inverse(at.order))
    return write(b, x, updates, at.indices, at.dims, "add" if accumulate else "set")


def _put_where(b: Expander, x: Value, mask: Value, dim: int, values: Value, accumulate: bool) -> Value:
    """Write where a mask over the dims from ``dim`` on holds: one value for all places, or one for each in order."""
    if not mask.rank:
        raise b.unsupported("a 0-d mask as an index")
    lead, rest = x.shape[:dim], x.shape[dim + mask.rank :]
    hits = b.cast(flattened(b, mask), dt.boolean)
    # Values are laid out as [lead, true elements of the mask, rest], or broadcast to it.
    axis = values.rank - len(rest) - 1
    if axis >= 0 and values.shape[axis] != 1:
        values = _one_for_each(b, hits, values, axis, exactly=True)
    elif 0 in x.shape:
        return x
    spread = b.reshape(b.broadcast(values, (*lead, hits.shape[0], *rest)), x.shape)
    hits = b.broadcast(b.reshape(hits, mask.shape), x.shape, tuple(range(dim, dim + mask.rank)))
    if accumulate:
        spread = b.or_(x, spread) if x.dtype.is_bool else b.add(x, spread)
    return b.select(hits, spread, x)


def _put_beside(b: Expander, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """Write where a mask holds, beside indices that are the same for all of it: what it leaves out is dropped."""
    masks = [i for i in indices if i is not None and is_mask(i)]
    if len(masks) > 1 or not masks[0].rank:
        raise b.unsupported("masks without dims, or beside each other where a value is written")
    hits = b.cast(flattened(b, masks[0]), dt.boolean)
    made: list[Value] = []
    for dim, size in enumerate(masks[0].shape):
        along = flattened(b, b.broadcast(b.iota(size=size, dtype=dt.int64), masks[0].shape, (dim,)))
        made.append(b.select(hits, along, const(b, along, -1)))
    replaced = [one for i in indices for one in (made if i is masks[0] else [i])]
    at = Advanced(b, x, replaced, inside=made)
    if 0 in at.shape:
        return x
    # The mask's elements lie along the last dim of what the indices select.
    axis = values.rank - (len(at.shape) - at.order.index(at.indices[0].rank - 1))
    if axis >= 0 and values.shape[axis] != 1:
        values = _one_for_each(b, hits, values, axis, exactly=True)
    updates = b.transpose(b.broadcast(values, at.shape), inverse(at.order))
    return write(b, x, updates, at.indices, at.dims, "add" if accumulate else "set")


def _one_for_each(b: Expander, hits: Value, values: Value, axis: int, exactly: bool) -> Value:
    """Along ``axis``, the n-th value at the n-th true element of ``hits``; elsewhere whatever.

    A check that the values are as many as the true elements, or no fewer.
    """
    count = b.cast(hits, dt.int64)
    total, have = b.reduce(count, "sum", (0,)), tensor(b, values.shape[axis], dt.int64)
    error = "as many values as the mask has true elements are needed"
    b.emit("check", b.eq(have, total) if exactly else b.ge(have, total), message=error)
    number = b.scan(count, kind="sum", dim=0)
    if not isinstance(values.shape[axis], int):
        # A gather wants something to read where no element of the mask is true.
        high = tuple(int(d == axis) for d in range(values.rank))
        zero = b.scalar(convert_number(0, values.dtype), values.dtype)
        values = b.emit("pad", values, zero, low=(0,) * values.rank, high=high)[0]
    out = read(b, values, [b.sub(number, const(b, number, 1))], [axis])
    return b.transpose(out, inverse(to_front(values.rank, [axis])))


@expands("aten.masked_scatter.default")
def masked_scatter(b: Expander, x: Value, mask: Value, source: Value) -> Value:
    """The elements of source, in order, where the mask holds."""
    shape = b.type.dims
    x, mask = b.broadcast(x, shape), b.broadcast(b.cast(mask, dt.boolean), shape)
    values = _one_for_each(b, flattened(b, mask), flattened(b, source), 0, exactly=False)
    return b.select(mask, b.reshape(values, shape), x)


@expands("aten.masked_scatter_backward.default")
def masked_scatter_backward(b: Expander, grad: Value, mask: Value, sizes: Any) -> Value:
    """The gradient of the source: what the mask selects, in order, then zeros."""
    hits = Hits(b, b.broadcast(mask, grad.shape))
    size = product(b.type.dims)
    check = b.le(hits.count, tensor(b, size, dt.int64))
    b.emit("check", check, message="the mask has more true elements than the source has elements")
    return b.reshape(hits.pick(grad, zeros(b, (size,), grad.dtype)), b.type.dims)


@expands("aten.put.default")
def put(b: Expander, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Elements of the flattened tensor replaced, or added to."""
    flat = flattened(b, x)
    index = wrapped(b, flattened(b, index), flat.shape[0])
    updates = b.reshape(source, index.shape)
    return b.reshape(write(b, flat, updates, [index], [0], "add" if accumulate else "set"), x.shape)


# scatter: each element of the index tensor chooses along dim, at its own place in the other dims.


def _scatter(b: Expander, x: Value, dim: int, index: Value, source: Any, kind: str) -> Value:
    if 0 in index.shape:
        return x
    shape, x, index = x.shape, at_least_1d(b, x), at_least_1d(b, index)
    dim = wrap_dim(dim, x.rank)
    index = checked(b, index, x.shape[dim])
    if isinstance(source, Value) and source.rank:
        # Only as much of it is used as the index tensor covers.
        for d, size in enumerate(index.shape):
            source = b.slice(source, d, 0, size)
    updates = b.broadcast(tensor(b, source, x.dtype), index.shape)
    out = write(b, x, updates, places(b, index, dim), range(x.rank), kind, wide=True)
    return b.reshape(out, shape)


@expands("aten.scatter.src", "aten.scatter.value")
def scatter(b: Expander, x: Value, dim: int, index: Value, source: Any) -> Value:
    return _scatter(b, x, dim, index, source, "set")


@expands("aten.scatter_add.default")
def scatter_add(b: Expander, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(b, x, dim, index, source, "add")


@expands("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combine(b: Expander, x: Value, dim: int, index: Value, source: Any, reduce: str) -> Value:
    return _scatter(b, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


_KINDS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


def _identity(x: Value, reduce: str) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    largest = reduce == "amin"
    if x.dtype.is_float:
        return float("inf") if largest else float("-inf")
    if x.dtype.is_bool:
        return largest
    low = -(1 << (x.dtype.bits - 1)) if x.dtype.is_signed else 0
    return low + (1 << x.dtype.bits) - 1 if largest else low


def _mean(b: Expander, total: Value, counts: Value) -> Value:
    """total / counts, rounded down for integers, in eager's dtype for both: that of the tensor."""
    counts = b.select(b.eq(counts, const(b, counts, 0)), const(b, counts, 1), counts)
    if total.dtype.is_int:
        return floor_divide(b, total, counts)
    compute = opmath(total.dtype)
    return b.cast(b.div(b.cast(total, compute), b.cast(counts, compute)), total.dtype)


@expands("aten.scatter_reduce.two")
def scatter_reduce(
    b: Expander, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """Without ``include_self``, an element that receives something begins at the identity."""
    if not include_self:
        x = _scatter(b, x, dim, index, convert_number(_identity(x, reduce), x.dtype), "set")
    out = _scatter(b, x, dim, index, source, _KINDS[reduce])
    if reduce != "mean" or 0 in index.shape:
        return out
    counts = _scatter(b, b.full(convert_number(include_self, x.dtype), x.shape, x.dtype), dim, index, 1, "add")
    return _mean(b, out, counts)


# index_*: a 1-d index chooses whole slices along dim.


def _write_slices(b: Expander, x: Value, dim: int, index: Value, source: Value, kind: str, wide: bool = False) -> Value:
    if 0 in x.shape[:dim] or 0 in x.shape[dim + 1 :]:
        return x
    updates = b.transpose(source, to_front(x.rank, [dim]))
    return write(b, x, updates, [index], [dim], kind, wide)


def _by_slices(b: Expander, x: Value, dim: int, index: Value, source: Value, kind: str, wide: bool = False) -> Value:
    shape, x, index = x.shape, at_least_1d(b, x), at_least_1d(b, index)
    dim = wrap_dim(dim, x.rank)
    source = b.reshape(source, (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]))
    index = checked(b, index, x.shape[dim])
    return b.reshape(_write_slices(b, x, dim, index, source, kind, wide), shape)


@expands("aten.index_copy.default")
def index_copy(b: Expander, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _by_slices(b, x, dim, index, source, "set")


@expands("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(b: Expander, x: Value, dim: int, index: Value, value: Any) -> Value:
    """The one of these ops in which negative indices count from the end."""
    shape, x = x.shape, at_least_1d(b, x)
    dim = wrap_dim(dim, x.rank)
    index = wrapped(b, at_least_1d(b, index), x.shape[dim])
    source = b.broadcast(tensor(b, value, x.dtype), (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]), ())
    return b.reshape(_write_slices(b, x, dim, index, source, "set"), shape)


@expands("aten.index_add.default")
def index_add(b: Expander, x: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    """Eager takes sums of matrices to scatter_add, which accumulates 16-bit floats in float32.

    It looks at no index where there is nothing to add to.
    """
    if 0 in x.shape:
        return x
    if alpha != 1:
        by = tensor(b, alpha, source.dtype)
        source = (
            b.and_(source, b.broadcast(by, source.shape))
            if x.dtype.is_bool
            else b.mul(source, b.broadcast(by, source.shape))
        )
    return _by_slices(b, x, dim, index, source, "add", wide=x.rank == 2 and alpha == 1)


@expands("aten.index_reduce.default")
def index_reduce(
    b: Expander, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    def ones_like(v: Value) -> Value:
        return const(b, v, 1)

    if not include_self:
        x = _by_slices(b, x, dim, index, const(b, source, _identity(x, reduce)), "set")
    out = _by_slices(b, x, dim, index, source, _KINDS[reduce])
    if reduce != "mean":
        return out
    begin = ones_like(x) if include_self else zeros(b, x.shape, x.dtype)
    return _mean(b, out, index_add(b, begin, dim, index, ones_like(source)))


@expands("aten.diagonal_scatter.default")
def diagonal_scatter(b: Expander, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal is the last dim of source."""
    dim1, dim2 = wrap_dim(dim1, x.rank), wrap_dim(dim2, x.rank)
    length = dim_max(dim_min(x.shape[dim1] - max(-offset, 0), x.shape[dim2] - max(offset, 0)), 0)
    step = b.iota(size=length, dtype=dt.int64)
    at = {dim1: b.add(step, const(b, step, max(-offset, 0))), dim2: b.add(step, const(b, step, max(offset, 0)))}
    dims = sorted(at)
    updates = b.transpose(source, to_front(source.rank, [source.rank - 1]))
    rest = tuple(size for d, size in enumerate(x.shape) if d not in dims)
    updates = b.fit(updates, (length, *rest))
    return write(b, x, updates, [at[d] for d in dims], dims, "set")
