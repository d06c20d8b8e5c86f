"""Pooling and max unpooling.

The windows and divisors are those of aten/src/ATen/native/cpu/AvgPoolKernel.cpp and MaxPoolKernel.cpp.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import DType, Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ops.composite import FIRST
from torchstone.compiler.transforms.expansions.common import const, convert_number, expand_dims, is_nan
from torchstone.compiler.transforms.expansions.indexing.index import bound, checked, places, zeros
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.expansions.nn.windows import Window, fitted, overlapped_along, padded, slide
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# The place of an element in the padding: no sum of a few such is near the end of int64.
OUTSIDE = 1 << 60


def zero_results(b: Expander) -> tuple[Value, ...]:
    """The results of an op when they have no elements, or are sums of none."""
    return tuple(b.full(convert_number(0, r.tensor.dtype), r.tensor.dims, r.tensor.dtype) for r in b.op.results)


@expands("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    b: Expander, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """The sum of a window over the number of its elements: with the padding, without it, or as given."""
    if 0 in b.type.dims:
        return zero_results(b)
    space = int(b.op.name[len("aten.avg_pool")])
    window = Window.over(space, kernel, stride, padding, ceil_mode=ceil_mode)
    first = x.rank - space
    values = b.cast(x, opmath(x.dtype))
    if divisor is None and x.dtype.is_float:
        if count_include_pad:
            values = padded(b, values, Window(window.kernel, window.stride, window.padding, window.dilation))
            window = Window(window.kernel, window.stride, (0,) * space, window.dilation, ceil_mode)
        return (b.cast(_pooled(b, "average_pool", values, window), b.type.dtype),)
    total = padded(b, values, window)
    for axis in range(space):
        total = b.reduce(slide(b, total, first + axis, window.along(axis)), "sum", (x.rank,))
    total = fitted(b, total, first, b.type.dims[first:])
    return (b.cast(_divided(b, total, window, x.shape[first:], count_include_pad, divisor), b.type.dtype),)


def _pooled(b: Expander, name: str, x: Value, window: Window, **more: Any) -> Value:
    """A composite over windows, of the sizes of the op's first result; x may have no batch dim."""
    space = len(window.kernel)
    batched = b.reshape(x, (1, *x.shape)) if x.rank == space + 1 else x
    over = [step - 1 if window.ceil_mode else 0 for step in window.stride]
    high = tuple(p + o for p, o in zip(window.padding, over, strict=True))
    (out,) = b.emit(
        name, batched, kernel=window.kernel, stride=window.stride, low=window.padding, high=high, **more, channels=FIRST
    )
    out = fitted(b, out, 2, b.type.dims[x.rank - space :])
    return b.reshape(out, out.shape[1:]) if x.rank == space + 1 else out


def _divided(
    b: Expander, x: Value, window: Window, sizes: Sequence[Dim], count_include_pad: bool, divisor: int | None
) -> Value:
    """Divide what there is for each window by the number of the window's elements, or the divisor given."""
    if divisor is not None:
        return b.div(x, const(b, x, divisor))
    counts = const(b, x, 1)
    for axis, size in enumerate(sizes):
        one = window.along(axis)
        if count_include_pad:
            # The padding counts, but what a window reaches past it does not.
            size = size + 2 * one.padding[0]
            one = Window(one.kernel, one.stride, (0,), one.dilation, one.ceil_mode)
        if not any(one.padding) and not one.ceil_mode:
            counts = b.mul(counts, const(b, x, one.kernel[0]))
            continue
        dim = x.rank - len(sizes) + axis
        ones = padded(b, b.full(convert_number(1, x.dtype), (size,), x.dtype), one)
        count = b.reduce(slide(b, ones, 0, one), "sum", (1,))
        counts = b.mul(counts, b.broadcast(fitted(b, count, 0, (x.shape[dim],)), x.shape, (dim,)))
    return b.div(x, counts)


@expands("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    b: Expander, grad: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> tuple[Value, ...]:  # fmt: skip
    """The gradient of a window, divided as its sum was, goes to each of its elements."""
    if 0 in x.shape or 0 in grad.shape:
        return zero_results(b)
    space = int(b.op.name[len("aten.avg_pool")])
    window = Window.over(space, kernel, stride, padding, ceil_mode=ceil_mode)
    first = x.rank - space
    out = _divided(b, b.cast(grad, opmath(x.dtype)), window, x.shape[first:], count_include_pad, divisor)
    for axis in range(space):
        dim, one = first + axis, window.along(axis)
        copies = b.broadcast(out, (*out.shape[:dim], *one.kernel, *out.shape[dim:]), _all_but(dim, out.rank + 1))
        out = overlapped_along(b, copies, dim, x.shape[dim], one)
    return (b.cast(out, b.type.dtype),)


def _all_but(dim: int, rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != dim)


@expands("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    b: Expander, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Value, ...]:  # fmt: skip
    """The largest element of a window and its place in the flattened plane: see ``largest``."""
    if 0 in b.type.dims:
        return zero_results(b)
    space = int(b.op.name[len("aten.max_pool")])
    window = Window.over(space, kernel, stride, padding, dilation, ceil_mode)
    first = x.rank - space
    sizes, counts = x.shape[first:], b.type.dims[first:]
    value = padded(b, x, window, least(x.dtype))
    place = padded(b, numbered(b, sizes), window, OUTSIDE)
    for axis in range(space):
        one = window.along(axis)
        value, place = largest(
            b, slide(b, value, first + axis, one), slide(b, place, place.rank - space + axis, one), (x.rank,)
        )
    # Where the target has no pooling, its body is what led to the places, and is not computed again.
    value = _pooled(b, "max_pool", x, window, dilation=window.dilation)
    place = fitted(b, place, first, counts)
    if any(window.padding) and any(d > 1 for d in window.dilation):
        # Only windows with gaps can have all their elements in the padding.
        place = b.select(b.lt(place, const(b, place, OUTSIDE)), place, _entries(b, place, window, sizes))
    return value, place


def least(dtype: DType) -> float:
    """The value that no other one is smaller than."""
    if dtype.is_float:
        return -math.inf
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def numbered(b: Expander, sizes: Sequence[Dim]) -> Value:
    """The place of each element of a plane."""
    return b.reshape(b.iota(size=product(tuple(sizes)), dtype=dt.int64), tuple(sizes))


def largest(b: Expander, windows: Value, place: Value, dims: tuple[int, ...]) -> tuple[Value, Value]:
    """The largest element over ``dims`` and the least place that has it; a NaN before all, then its last place.

    Places are from 0, ``OUTSIDE`` where an element is not to be found: that is what stays if none is. They may lack
    leading dims.
    """
    value = b.reduce(windows, "max", dims)
    found = b.eq(windows, expand_dims(b, value, windows.shape, dims))
    place = b.broadcast(place, windows.shape)
    key = b.select(found, place, const(b, place, OUTSIDE))
    if not windows.dtype.is_float:
        return value, b.reduce(key, "min", dims)
    # No element equals a NaN, so these keys, -1 and below, meet no others.
    key = b.reduce(b.select(is_nan(b, windows), b.not_(place), key), "min", dims)
    return value, b.select(b.lt(key, const(b, key, 0)), b.not_(key), key)


def _entries(b: Expander, place: Value, window: Window, sizes: Sequence[Dim]) -> Value:
    """The first place of each window that is not before the plane: what eager names when there is none in it."""
    entries = []
    for axis, (step, padding, gap) in enumerate(zip(window.stride, window.padding, window.dilation, strict=True)):
        dim = place.rank - len(sizes) + axis
        start = b.iota(size=place.shape[dim], dtype=dt.int64)
        start = b.sub(b.mul(start, const(b, start, step)), const(b, start, padding))
        before = b.max(b.neg(start), const(b, start, 0))
        gaps = b.div(b.add(before, const(b, start, gap - 1)), const(b, start, gap))
        start = b.add(start, b.mul(gaps, const(b, start, gap)))
        entries.append(b.broadcast(b.mul(start, bound(b, start, product(sizes[axis + 1 :]))), place.shape, (dim,)))
    return functools.reduce(b.add, entries)


@expands(
    "aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default",
    "aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default",
    "aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default",
)  # fmt: skip
def max_pool_backward(b: Expander, grad: Value, x: Value, *arguments: object) -> tuple[Value, ...]:
    """Each gradient is added where its element was found."""
    index = arguments[-1]
    assert isinstance(index, Value)
    if 0 in x.shape or 0 in grad.shape:
        return zero_results(b)
    space = int(b.op.name[b.op.name.index("max_pool") + len("max_pool")])
    shape = b.type.dims
    planes, size = product(shape[: len(shape) - space]), product(shape[len(shape) - space :])
    rows = (planes, product(grad.shape[grad.rank - space :]))
    index = checked(b, b.reshape(index, rows), size, f"a max index outside the {size} elements of a plane")
    into = b.full(convert_number(0, grad.dtype), (planes, size), grad.dtype)
    return (b.reshape(write(b, into, b.reshape(grad, rows), places(b, index, 1), [0, 1], "add"), shape),)


@expands("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(b: Expander, x: Value, indices: Value, *_: Any) -> Value:
    """A place out of the plane is an error, never a place in the next plane. Of an empty one none is looked at."""
    space = int(b.op.name[len("aten.max_unpool")])
    shape = b.type.dims
    lead, size = shape[: len(shape) - space], product(shape[len(shape) - space :])
    if 0 in x.shape or 0 in shape:
        return zeros(b, shape, x.dtype)
    rows = (product(lead), product(x.shape[x.rank - space :]))
    index = checked(b, b.reshape(indices, rows), size, f"a max index outside the output volume of {size} elements")
    into = zeros(b, (rows[0], size), x.dtype)
    return b.reshape(write(b, into, b.reshape(x, rows), places(b, index, 1), [0, 1], "set"), shape)
