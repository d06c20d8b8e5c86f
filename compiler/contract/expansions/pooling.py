"""Pooling. The windows and divisors are those of aten/src/ATen/native/cpu/AvgPoolKernel.cpp and MaxPoolKernel.cpp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.contract.expansions.common import const, convert_number, is_nan
from torchstone.compiler.contract.expansions.join import concat
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
    place: Value | None = None
    for position, part in positions(b, padded(b, x, along, least), along):
        here = _place(b, part, along, position)
        if best is None or place is None:
            # Padding is never the place, even where all elements are as small as it.
            best, place = const(b, part, least), _first_place(b, part, along)
        better = b.gt(part, best)
        better = b.or_(better, is_nan(b, part)) if x.dtype.is_float else better
        best, place = b.select(better, part, best), b.select(better, here, place)
    if best is None or place is None:
        raise b.unsupported("windows without elements")
    return best, place


def _nothing(b: Expander) -> tuple[Value, Value]:
    """The two results of an op when they have no elements."""
    first, second = (b.full(convert_number(0, r.dtype), r.shape, r.dtype) for r in b.op.results)
    return first, second


def _smallest(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _flat(b: Expander, like: Value, along: Sequence[Axis], coordinates: Sequence[Sequence[int]]) -> Value:
    """The place in the flattened plane of an element whose coordinates are given for each window along each axis."""
    total: Value | None = None
    scale = 1
    for offset, (axis, numbers) in enumerate(zip(reversed(along), reversed(coordinates), strict=True)):
        part = _along(b, [n * scale for n in numbers], like, like.rank - 1 - offset, dt.int64)
        total = part if total is None else b.add(total, part)
        scale *= static_size(axis.size)
    assert total is not None
    return total


def _place(b: Expander, like: Value, along: Sequence[Axis], position: Sequence[int]) -> Value:
    coordinates = [
        [w * axis.stride - axis.low + at * axis.dilation for w in range(static_size(axis.count))]
        for at, axis in zip(position, along, strict=True)
    ]
    return _flat(b, like, along, coordinates)


def _first_place(b: Expander, like: Value, along: Sequence[Axis]) -> Value:
    coordinates = [[(axis.inside(w) or [0])[0] for w in range(static_size(axis.count))] for axis in along]
    return _flat(b, like, along, coordinates)


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
    first = x.rank - space
    lead: Any = x.shape[:first]
    bounds = [_bounds(static_size(x.shape[d]), static_size(b.type.dims[d])) for d in range(first, x.rank)]
    values: list[Value] = []
    places: list[Value] = []
    windows: list[tuple[tuple[int, int], ...]] = [()]
    for axis in bounds:
        windows = [(*w, part) for w in windows for part in axis]
    if len(windows) > 256:
        raise b.unsupported(f"{len(windows)} windows")
    for window in windows:
        part = x
        for dim, (low, high) in enumerate(window, first):
            part = b.slice(part, dim, low, high)
        count = math.prod(high - low for low, high in window)
        flat = b.reshape(part, (*lead, count))
        values.append(b.reshape(b.reduce(flat, "max", (first,)), (*lead, 1)))
        places.append(b.reshape(_window_place(b, flat, window, x.shape[first:]), (*lead, 1)))
    value, place = (concat(b, parts, first) for parts in (values, places))
    return b.reshape(value, b.type.dims), b.reshape(place, b.type.dims)


def _window_place(b: Expander, flat: Value, window: Sequence[tuple[int, int]], sizes: Sequence[Any]) -> Value:
    """Where the largest element of a flattened window lies in the flattened plane."""
    last = flat.rank - 1
    index = b.arg_reduce(flat, kind="argmax", dim=last)
    if flat.dtype.is_float:
        bad = b.cast(b.reverse(is_nan(b, flat), dims=(last,)), dt.uint8)
        from_end = b.arg_reduce(bad, kind="argmax", dim=last)
        last_nan = b.sub(const(b, from_end, static_size(flat.shape[last]) - 1), from_end)
        index = b.select(b.reduce(is_nan(b, flat), "or", (last,)), last_nan, index)
    out = const(b, index, 0)
    scale = 1
    for (low, high), size in zip(reversed(window), reversed(sizes), strict=True):
        extent = const(b, index, high - low)
        coordinate = b.add(b.rem(index, extent), const(b, index, low))
        out = b.add(out, b.mul(coordinate, const(b, index, scale)))
        index = b.div(index, extent)
        scale *= size
    return out
