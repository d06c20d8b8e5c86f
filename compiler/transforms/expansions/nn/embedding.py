"""Embedding tables: rows by index, bags of rows, and their backward ops. aten/src/ATen/native/Embedding{,Bag}.cpp."""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, is_nan
from torchstone.compiler.transforms.expansions.core.reduction import norm
from torchstone.compiler.transforms.expansions.indexing.index import bound, check_all, checked, flattened, read, zeros
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.embedding.default")
def embedding(
    b: Expander, weight: Value, indices: Value, padding_idx: Dim = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:  # fmt: skip
    return read(b, weight, [checked(b, indices, weight.shape[0], "index out of range in self")], [0])


@expands("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    b: Expander, grad: Value, indices: Value, num_weights: Dim, padding_idx: Dim, scale_grad_by_freq: bool
) -> Value:
    """Gradients added up by row of the table. Those of padding count nothing, as those out of range do in eager."""
    index = b.cast(flattened(b, indices), dt.int64)
    index = b.select(b.eq(index, bound(b, index, padding_idx)), const(b, index, -1), index)
    updates = b.reshape(grad, (index.shape[0], b.type.dims[1]))
    if 0 in updates.shape or num_weights == 0:
        return zeros(b, b.type.dims, grad.dtype)
    if scale_grad_by_freq:
        counts = write(b, zeros(b, (num_weights,), dt.int64), const(b, index, 1), [index], [0], "add")
        times = b.cast(read(b, counts, [index], [0]), updates.dtype)
        updates = b.div(updates, b.broadcast(times, updates.shape, (0,)))
    return write(b, zeros(b, b.type.dims, grad.dtype), updates, [index], [0], "add")


@expands("aten.embedding_renorm.default")
def embedding_renorm(b: Expander, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """The rows that are looked up, scaled down to the largest norm allowed."""
    index = checked(b, flattened(b, indices), weight.shape[0])
    none, yes = b.full(False, weight.shape[:1], dt.boolean), b.full(True, index.shape, dt.boolean)
    used = write(b, none, yes, [index], [0], "set")
    compute = opmath(weight.dtype)
    rows = b.cast(weight, compute)
    size = b.cast(b.cast(norm(b, rows, float(norm_type), (1,)), weight.dtype), compute)
    limit = const(b, size, max_norm)
    scale = b.div(limit, b.add(size, const(b, size, 1e-7)))
    scaled = b.cast(b.mul(rows, b.broadcast(scale, rows.shape, (0,))), weight.dtype)
    shrink = b.and_(used, b.gt(size, limit))
    return b.select(b.broadcast(shrink, weight.shape, (0,)), scaled, weight)


# Bags

_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_of_each(b: Expander, offsets: Value, count: Dim) -> Value:
    """The number of the bag that each of ``count`` indices is in: how many bags but the first have begun."""
    begins = b.slice(offsets, 0, 1, offsets.shape[0])
    marks = write(b, zeros(b, (count,), dt.int64), const(b, begins, 1), [begins], [0], "add")
    return b.scan(marks, kind="sum", dim=0)


def _check_offsets(b: Expander, offsets: Value, count: Dim, include_last: bool) -> None:
    """From 0, never falling, to at most the number of indices; exactly that when the last one is the end."""
    size = offsets.shape[0]
    first = b.slice(offsets, 0, 0, 1)
    check_all(b, b.eq(first, const(b, first, 0)), "offsets[0] has to be 0")
    last = b.slice(offsets, 0, size - 1, size)
    end = bound(b, last, count)
    fits = b.eq(last, end) if include_last else b.le(last, end)
    check_all(b, fits, "the last offset does not fit the number of indices")
    before, after = b.slice(offsets, 0, 0, size - 1), b.slice(offsets, 0, 1, size)
    check_all(b, b.le(before, after), "offsets must not fall")


@expands("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    b: Expander, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = _SUM,
    sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, ...]:  # fmt: skip
    """Rows of the table combined by bag; then the bag of each index, the size of each bag, and where maxima came from.

    An empty bag is zeros. What eager leaves unset for a mode is zeros, too.
    """
    out, bag_type, size_type, max_type = (r.tensor for r in b.op.results)
    bags, count = out.dims[0], indices.shape[0]
    unset = [zeros(b, t.dims, t.dtype) for t in (out, bag_type, size_type, max_type)]
    if 0 in out.dims or count == 0 or weight.shape[0] == 0:
        return tuple(unset)
    index = checked(b, indices, weight.shape[0])
    offsets = b.cast(offsets, dt.int64)
    _check_offsets(b, offsets, count, include_last_offset)
    bag = _bag_of_each(b, offsets, count)
    if padding_idx >= 0:
        # No bag's: dropped by every scatter.
        inside = b.ne(index, const(b, index, padding_idx))
        member = b.select(inside, bag, const(b, bag, -1))
    else:
        member = bag
    sizes = write(b, zeros(b, (bags,), dt.int64), const(b, member, 1), [member], [0], "add")
    empty = b.eq(sizes, const(b, sizes, 0))
    rows = b.cast(read(b, weight, [index], [0]), opmath(weight.dtype))
    where = unset[3]
    if mode == _MAX:
        total, position = _largest(b, rows, member, bags)
        gone = b.broadcast(empty, total.shape, (0,))
        total = b.select(gone, const(b, total, 0), total)
        chosen = read(b, index, [b.select(gone, const(b, position, 0), position)], [0])
        where = b.cast(b.select(gone, const(b, chosen, 0), chosen), max_type.dtype)
    else:
        if per_sample_weights is not None:
            rows = b.mul(rows, b.broadcast(b.cast(per_sample_weights, rows.dtype), rows.shape, (0,)))
        total = write(b, zeros(b, out.dims, rows.dtype), rows, [member], [0], "add")
        if mode == _MEAN:
            divisor = b.cast(b.select(empty, const(b, sizes, 1), sizes), rows.dtype)
            total = b.div(total, b.broadcast(divisor, total.shape, (0,)))
    bag_out = b.cast(bag, bag_type.dtype) if bag_type.dims == bag.shape else unset[1]
    sizes = b.cast(sizes, size_type.dtype)
    if mode == _MEAN:
        where = _fit(b, sizes, max_type.dims[0])
    return b.cast(total, out.dtype), bag_out, unset[2] if mode == _SUM else _fit(b, sizes, size_type.dims[0]), where


def _fit(b: Expander, sizes: Value, length: Dim) -> Value:
    """Zeros after the sizes of the bags where PyTorch's shape function counts the last offset as a bag."""
    more = length - sizes.shape[0]
    return sizes if more == 0 else b.emit("pad", sizes, b.scalar(0, sizes.dtype), low=(0,), high=(more,))[0]


def _largest(b: Expander, rows: Value, bag: Value, bags: Dim) -> tuple[Value, Value]:
    """The largest element of each bag by column and its row: the first of equals. A NaN counts only if it is first."""
    count, columns = rows.shape
    order = b.iota(size=count, dtype=dt.int64)
    none = bound(b, zeros(b, (bags,), dt.int64), count)
    first = write(b, none, order, [bag], [0], "min")
    begins = b.eq(read(b, first, [bag], [0]), order)
    ignored = b.and_(is_nan(b, rows), b.not_(b.broadcast(begins, rows.shape, (0,))))
    least = const(b, rows, -math.inf)
    rows = b.select(ignored, least, rows)
    best = write(b, b.full(-math.inf, (bags, columns), rows.dtype), rows, [bag], [0], "max")
    hit = b.or_(b.eq(rows, read(b, best, [bag], [0])), is_nan(b, rows))
    # An ignored NaN became the least of all; it is not the place even where all are as small.
    hit = b.and_(hit, b.not_(ignored))
    place = b.broadcast(order, rows.shape, (0,))
    far = bound(b, place, count)
    position = write(b, bound(b, best, count), b.select(hit, place, far), [bag], [0], "min")
    return best, position


@expands("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    b: Expander, grad: Value, indices: Value, offsets: Value, bag: Value, sizes: Value, largest: Value,
    num_weights: Dim, scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:  # fmt: skip
    if sparse:
        raise b.unsupported("a sparse gradient")
    bag = _known_bags(b, bag, offsets, indices)
    rest = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    return embedding_bag_dense_backward(b, grad, indices, bag, sizes, largest, *rest)


def _known_bags(b: Expander, bag: Value, offsets: Value, indices: Value) -> Value:
    """The bag of each index. Eager's forward op leaves it out where it has no use for it."""
    if bag.shape == indices.shape:
        return b.cast(bag, dt.int64)
    return _bag_of_each(b, b.cast(offsets, dt.int64), indices.shape[0])


@expands("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    b: Expander, grad: Value, indices: Value, bag: Value, sizes: Value, largest: Value, num_weights: Dim,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Value | None, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The gradient of the table: that of its bag for each index, or of a maximum for the row it came from."""
    zero = zeros(b, b.type.dims, grad.dtype)
    if 0 in grad.shape or 0 in indices.shape or 0 in zero.shape:
        return zero
    if mode == _MAX:
        full = b.ne(sizes, const(b, sizes, 0))
        row = b.select(b.broadcast(full, largest.shape, (0,)), largest, const(b, largest, -1))
        row = b.cast(row, dt.int64)
        column = b.broadcast(b.iota(size=grad.shape[1], dtype=dt.int64), row.shape, (1,))
        return write(b, zero, grad, [row, column], [0, 1], "add")
    index, compute = b.cast(indices, dt.int64), opmath(grad.dtype)
    updates = b.cast(read(b, grad, [b.cast(bag, dt.int64)], [0]), compute)
    if scale_grad_by_freq:
        raise b.unsupported("scale_grad_by_freq: eager divides by how often another index occurs")
    if mode == _MEAN:
        size = read(b, b.cast(sizes, compute), [b.cast(bag, dt.int64)], [0])
        size = b.select(b.eq(size, const(b, size, 0)), const(b, size, 1), size)
        updates = b.div(updates, b.broadcast(size, updates.shape, (0,)))
    if per_sample_weights is not None:
        updates = b.mul(updates, b.broadcast(b.cast(per_sample_weights, compute), updates.shape, (0,)))
    if padding_idx >= 0:
        index = b.select(b.eq(index, const(b, index, padding_idx)), const(b, index, -1), index)
    return write(b, zero, b.cast(updates, grad.dtype), [index], [0], "add")


@expands("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(
    b: Expander, grad: Value, weight: Value, indices: Value, offsets: Value, bag: Value, mode: int,
    padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The product of each row with the gradient of its bag; 0 for padding."""
    if 0 in indices.shape or 0 in grad.shape:
        return zeros(b, b.type.dims, b.type.dtype)
    index = checked(b, indices, weight.shape[0])
    compute = opmath(grad.dtype)
    rows, above = read(b, weight, [index], [0]), read(b, grad, [_known_bags(b, bag, offsets, indices)], [0])
    out = b.reduce(b.mul(b.cast(rows, compute), b.cast(above, compute)), "sum", (1,))
    out = b.cast(out, b.type.dtype)
    return b.select(b.eq(index, const(b, index, padding_idx)), const(b, out, 0), out) if padding_idx >= 0 else out
