"""Pooling. The windows and divisors are those of aten/src/ATen/native/cpu/AvgPoolKernel.cpp and MaxPoolKernel.cpp."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.compiler.contract.expansions.common import const, convert_number, is_nan
from torchstone.compiler.contract.expansions.join import concat
from torchstone.compiler.contract.expansions.upsampling import take
from torchstone.compiler.contract.expansions.windows import Axis, axes, padded, positions, spread, static_size
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt


def _static(b: Expander, x: Value, space: int) -> None:
    if not all(isinstance(s, int) for s in (*x.shape[x.rank - space :], *b.type.dims[b.type.rank - space :])):
        raise b.unsupported("windows over a run-time size")


@expands("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    b: Expander, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    """The sum of a window over the number of its elements: with the padding, without it, or as given."""
    space = int(b.op.name[len("aten.avg_pool")])
    _static(b, x, space)
    if 0 in b.type.dims:
        return b.full(convert_number(0, b.type.dtype), b.type.dims, b.type.dtype)
    kernel = spread(kernel, space)
    stride, padding = spread(stride, space, kernel), spread(padding, space)
    values = b.cast(x, opmath(x.dtype))
    along = axes(x, b.type.dims[x.rank - space :], kernel, stride, padding, (1,) * space)
    total: Value | None = None
    for _, part in positions(b, padded(b, values, along, 0), along):
        total = part if total is None else b.add(total, part)
    if total is None:
        raise b.unsupported("windows without elements")
    if divisor is not None:
        return b.cast(b.div(total, const(b, total, divisor)), b.type.dtype)
    counts = const(b, total, 1)
    for dim, axis in enumerate(along, x.rank - space):
        numbers = [_counted(axis, window, count_include_pad) for window in range(static_size(axis.count))]
        counts = b.mul(counts, _along(b, numbers, total, dim, total.dtype))
    return b.cast(b.div(total, counts), b.type.dtype)


def _counted(axis: Axis, window: int, count_include_pad: bool) -> int:
    start = window * axis.stride - axis.low
    end = min(start + axis.kernel, static_size(axis.size) + axis.low)
    return end - start if count_include_pad else min(end, static_size(axis.size)) - max(start, 0)


def _along(b: Expander, numbers: Sequence[int], like: Value, dim: int, dtype: DType) -> Value:
    """Numbers that lie along one dim, repeated to the shape of ``like``."""
    values = tuple(float(n) if dtype.is_float else n for n in numbers)
    if len(set(values)) == 1:
        return b.full(values[0], like.shape, dtype)
    vector = b.emit("constant", value=values, shape=(len(values),), dtype=dtype)[0]
    return b.broadcast(vector, like.shape, (dim,))


@expands(
    "aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default"
)  # fmt: skip
def max_pool(
    b: Expander, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """The largest element of a window and its place in the flattened plane: the first, but the last NaN before all."""
    space = int(b.op.name[len("aten.max_pool")])
    _static(b, x, space)
    if 0 in b.type.dims:
        return _nothing(b)
    kernel = spread(kernel, space)
    stride, padding, dilation = spread(stride, space, kernel), spread(padding, space), spread(dilation, space)
    along = axes(x, b.type.dims[x.rank - space :], kernel, stride, padding, dilation)
    least = -math.inf if x.dtype.is_float else _smallest(x.dtype)
    best: Value | None = None
    local: Value | None = None
    for number, (_, part) in enumerate(positions(b, padded(b, x, along, least), along)):
        if best is None or local is None:
            # Padding is never the place, even where all elements are as small as it.
            best, local = const(b, part, least), _first_inside(b, part, along)
        better = b.gt(part, best)
        better = b.or_(better, is_nan(b, part)) if x.dtype.is_float else better
        best, local = b.select(better, part, best), b.select(better, const(b, local, number), local)
    if best is None or local is None:
        raise b.unsupported("windows without elements")
    return best, _place(b, local, along)


def _nothing(b: Expander) -> tuple[Value, Value]:
    """The two results of an op when they have no elements."""
    first, second = (b.full(convert_number(0, r.dtype), r.shape, r.dtype) for r in b.op.results)
    return first, second


def _smallest(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _first_inside(b: Expander, like: Value, along: Sequence[Axis]) -> Value:
    """The number, in its window, of the first position that is no padding."""
    out = b.full(0, like.shape, dt.int64)
    for dim, axis in enumerate(along, like.rank - len(along)):
        firsts = [_first(axis, window) for window in range(static_size(axis.count))]
        out = b.add(b.mul(out, const(b, out, axis.kernel)), _along(b, firsts, out, dim, dt.int64))
    return out


def _first(axis: Axis, window: int) -> int:
    for k in range(axis.kernel):
        if 0 <= window * axis.stride - axis.low + k * axis.dilation < static_size(axis.size):
            return k
    return 0


def _place(b: Expander, local: Value, along: Sequence[Axis]) -> Value:
    """From the number of a position in its window to the place in the flattened plane."""
    out = const(b, local, 0)
    scale = 1
    for offset, axis in enumerate(reversed(along)):
        kernel = const(b, local, axis.kernel)
        within, local = b.rem(local, kernel), b.div(local, kernel)
        starts = [window * axis.stride - axis.low for window in range(static_size(axis.count))]
        start = _along(b, starts, out, out.rank - 1 - offset, dt.int64)
        coordinate = b.add(start, b.mul(within, const(b, within, axis.dilation)))
        out = b.add(out, b.mul(coordinate, const(b, coordinate, scale)))
        scale *= static_size(axis.size)
    return out


# Adaptive pooling: window i of n over a size goes from floor(i * size / n) to ceil((i + 1) * size / n).


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(i * size // count, -((-(i + 1) * size) // count)) for i in range(count)]


@expands("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(b: Expander, x: Value, output_size: Sequence[int]) -> Value:
    """The mean of each window: sums along one dim after the other, then one division."""
    space = int(b.op.name[len("aten._adaptive_avg_pool")])
    _static(b, x, space)
    if 0 in b.type.dims:
        return b.full(convert_number(0, b.type.dtype), b.type.dims, b.type.dtype)
    total = b.cast(x, opmath(x.dtype))
    sizes: list[list[int]] = []
    for dim in range(x.rank - space, x.rank):
        bounds = _bounds(static_size(x.shape[dim]), static_size(b.type.dims[dim]))
        parts = [b.reduce(b.slice(total, dim, low, high), "sum", (dim,)) for low, high in bounds]
        total = concat(b, [b.reshape(p, (*p.shape[:dim], 1, *p.shape[dim:])) for p in parts], dim)
        sizes.append([high - low for low, high in bounds])
    for dim, counts in enumerate(sizes, x.rank - space):
        total = b.div(total, _along(b, counts, total, dim, total.dtype))
    return b.cast(total, b.type.dtype)


@expands("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(b: Expander, x: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """The largest element of each window and its place in the flattened plane; the last NaN before all."""
    space = int(b.op.name[len("aten.adaptive_max_pool")])
    _static(b, x, space)
    if 0 in b.type.dims:
        return _nothing(b)
    sizes = [static_size(s) for s in x.shape[x.rank - space :]]
    first = x.rank - space
    lead = x.shape[:first]
    counts: list[int] = []
    lengths: list[int] = []
    coordinates: list[list[int]] = []
    # Along each dim every window becomes as long as the longest, its last element repeated: [count * length].
    for dim in range(first, x.rank):
        bounds = _bounds(static_size(x.shape[dim]), static_size(b.type.dims[dim]))
        longest = max(high - low for low, high in bounds)
        at = [min(low + k, high - 1) for low, high in bounds for k in range(longest)]
        x = take(b, x, dim, at)
        coordinates.append(at)
        counts.append(len(bounds))
        lengths.append(longest)
    # [count, length, count, length, …] -> [counts…, the window flattened]
    split = [size for pair in zip(counts, lengths, strict=True) for size in pair]
    order = (*range(first), *range(first, first + 2 * space, 2), *range(first + 1, first + 2 * space, 2))
    window = math.prod(lengths)
    flat = b.reshape(b.transpose(b.reshape(x, (*lead, *split)), order), (*lead, *counts, window))
    last = flat.rank - 1
    values = b.reduce(flat, "max", (last,))
    index = b.arg_reduce(flat, kind="argmax", dim=last)
    if flat.dtype.is_float:
        bad = b.cast(b.reverse(is_nan(b, flat), dims=(last,)), dt.uint8)
        from_end = b.arg_reduce(bad, kind="argmax", dim=last)
        last_nan = b.sub(const(b, from_end, window - 1), from_end)
        index = b.select(b.reduce(is_nan(b, flat), "or", (last,)), last_nan, index)
    return values, _adaptive_place(b, index, coordinates, lengths, sizes)


def _adaptive_place(
    b: Expander, index: Value, coordinates: Sequence[Sequence[int]], lengths: Sequence[int], sizes: Sequence[int]
) -> Value:
    """From the number of a position in its window to the place in the flattened plane.

    A window begins at its first coordinate; positions past its end are its last element again.
    """
    out = const(b, index, 0)
    scale = 1
    rows = [*zip(coordinates, lengths, sizes, strict=True)]
    for offset, (at, length, size) in enumerate(reversed(rows)):
        dim = out.rank - 1 - offset
        within, index = b.rem(index, const(b, index, length)), b.div(index, const(b, index, length))
        start = _along(b, at[::length], out, dim, dt.int64)
        end = _along(b, at[length - 1 :: length], out, dim, dt.int64)
        coordinate = b.min(b.add(start, within), end)
        out = b.add(out, b.mul(coordinate, const(b, coordinate, scale)))
        scale *= size
    return out
