"""Convolution and its neighbours as slices and one contraction, for targets that do not take it as it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.compiler.contract.expansions.common import convert_number
from torchstone.compiler.contract.expansions.join import concat
from torchstone.compiler.contract.expansions.windows import (
    MOST_POSITIONS,
    Axis,
    axes,
    padded,
    positions,
    spread,
    stretched,
)
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir.dims import Dim


@expands("aten.convolution.default")
def convolution(
    b: Expander, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """Every output element is a sum over input channels and positions in the window: torch.nn.functional.conv2d.

    Transposed, it is that sum's transpose: every input element, times the kernel, is added into the output.
    """
    space = x.rank - 2
    stride, padding, dilation = (spread(v, space) for v in (stride, padding, dilation))
    if x.dtype.is_bool:
        raise b.unsupported("bool")
    if transposed and space > 2:
        # Each position of the window is padded and added on its own: the CPU target compiles for over a minute.
        raise b.unsupported("a transposed convolution over three dims wants a primitive of its own")
    wide = opmath(x.dtype)
    shape = b.type.dims
    if 0 in x.shape or 0 in shape or 0 in weight.shape:
        out = b.full(convert_number(0, wide), shape, wide)
    else:
        x, weight = b.cast(x, wide), b.cast(weight, wide)
        window = _Window(_kernel(b, weight), stride, padding, dilation)
        rule = _transposed if transposed else _plain
        out = rule(b, x, weight, window, groups)
    if bias is not None:
        out = b.add(out, b.broadcast(b.cast(bias, wide), shape, (1,)))
    return b.cast(out, b.type.dtype)


@dataclass(frozen=True, slots=True)
class _Window:
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]


def _kernel(b: Expander, weight: Value) -> list[int]:
    sizes = [s for s in weight.shape[2:] if isinstance(s, int)]
    if len(sizes) != weight.rank - 2:
        raise b.unsupported("a kernel of run-time size")
    return sizes


def _plain(b: Expander, x: Value, weight: Value, window: _Window, groups: int) -> Value:
    batch, channels = x.shape[:2]
    outputs, inputs = weight.shape[:2]
    counts = b.type.dims[2:]
    along = axes(x, counts, window.kernel, window.stride, window.padding, window.dilation)
    columns = _columns(b, padded(b, x, along, 0), along)  # [n, c, positions, windows]
    rows, windows = columns.shape[2:]
    columns = b.reshape(columns, (batch, groups, channels // groups * rows, windows))
    kernel = b.reshape(weight, (groups, outputs // groups, inputs * rows))
    out = b.contract(kernel, columns, a_batch=(0,), b_batch=(1,), a_sum=(2,), b_sum=(2,))  # [g, o / g, n, windows]
    return b.reshape(b.transpose(out, (2, 0, 1, 3)), (batch, outputs, *counts))


def _columns(b: Expander, x: Value, along: Sequence[Axis]) -> Value:
    """[n, c, *space] -> [n, c, positions in the window, windows]."""
    windows = product([axis.count for axis in along])
    parts = [b.reshape(part, (*x.shape[:2], 1, windows)) for _, part in positions(b, x, along)]
    return concat(b, parts, 2)


def _transposed(b: Expander, x: Value, weight: Value, window: _Window, groups: int) -> Value:
    batch, channels, *space = x.shape
    outputs = weight.shape[1]
    rows = math.prod(window.kernel)
    image = b.reshape(x, (batch, groups, channels // groups, product(space)))
    kernel = b.reshape(weight, (groups, channels // groups, outputs * rows))
    out = b.contract(kernel, image, a_batch=(0,), b_batch=(1,), a_sum=(1,), b_sum=(2,))  # [g, o * rows, n, space]
    columns = b.reshape(b.transpose(out, (2, 0, 1, 3)), (batch, groups * outputs, *window.kernel, *space))
    return _laid_back(b, columns, b.type.dims[2:], window)


def _laid_back(b: Expander, columns: Value, sizes: Sequence[Dim], window: _Window) -> Value:
    """[n, c, *kernel, *windows] -> [n, c, *sizes]: each column added where its window lies."""
    space = len(sizes)
    if math.prod(window.kernel) > MOST_POSITIONS:
        raise b.unsupported(f"windows of more than {MOST_POSITIONS} elements")
    batch, channels = columns.shape[:2]
    zero = b.scalar(convert_number(0, columns.dtype), columns.dtype)
    for axis, stride in enumerate(window.stride, 2 + space):
        columns = stretched(b, columns, axis, stride)
    extent = columns.shape[2 + space :]
    total: Value | None = None
    for position in itertools.product(*map(range, window.kernel)):
        start = (0, 0, *position, *(0,) * space)
        limit = (batch, channels, *(at + 1 for at in position), *extent)
        part = b.emit("slice", columns, start=start, limit=limit, stride=(1,) * columns.rank)[0]
        part = b.reshape(part, (batch, channels, *extent))
        low: list[Dim] = [0, 0]
        high: list[Dim] = [0, 0]
        for axis, (at, size) in enumerate(zip(position, sizes, strict=True)):
            low.append(at * window.dilation[axis])
            reach = extent[axis] + (window.kernel[axis] - 1) * window.dilation[axis]
            whole = _larger(reach, size + 2 * window.padding[axis])
            high.append(whole - low[-1] - extent[axis])
        part = b.emit("pad", part, zero, low=tuple(low), high=tuple(high))[0]
        total = part if total is None else b.add(total, part)
    if total is None:
        raise b.unsupported("windows without elements")
    for axis, (size, padding) in enumerate(zip(sizes, window.padding, strict=True), 2):
        total = b.slice(total, axis, padding, padding + size)
    return total


def _larger(a: Dim, b: Dim) -> Dim:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else b


@expands("aten.im2col.default")
def im2col(
    b: Expander, x: Value, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Value:
    """The windows of an image as columns: torch.nn.functional.unfold."""
    image = b.reshape(x, (*(1,) * (4 - x.rank), *x.shape))
    kernel, dilation, padding, stride = (spread(v, 2) for v in (kernel, dilation, padding, stride))
    counts = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, d, p, s in zip(image.shape[2:], kernel, dilation, padding, stride, strict=True)
    ]
    along = axes(image, counts, kernel, stride, padding, dilation)
    return b.reshape(_columns(b, padded(b, image, along, 0), along), b.type.dims)


@expands("aten.col2im.default")
def col2im(
    b: Expander, x: Value, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Value:  # fmt: skip
    """The sum of the columns laid back over the image they come from: torch.nn.functional.fold."""
    kernel, dilation, padding, stride = (spread(v, 2) for v in (kernel, dilation, padding, stride))
    counts = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    ]
    batch = 1 if x.rank == 2 else x.shape[0]
    channels = x.shape[-2] // math.prod(kernel)
    columns = b.reshape(b.cast(x, opmath(x.dtype)), (batch, channels, *kernel, *counts))
    image = _laid_back(b, columns, size, _Window(kernel, stride, padding, dilation))
    return b.reshape(b.cast(image, b.type.dtype), b.type.dims)
