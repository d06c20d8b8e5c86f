"""Windows sliding over the last dims of a tensor, and their transpose: windows summed where they overlap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, floordiv
from torchstone.compiler.transforms.expansions.common import const, convert_number
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.expansions.nn.blending import blend
from torchstone.compiler.transforms.rules import Expander


def spread(values: Sequence[Any], rank: int, default: Sequence[Any] = ()) -> tuple[Any, ...]:
    """A window argument for each dim: PyTorch takes one number for all dims, or none for the default."""
    values = tuple(values) or tuple(default)
    return values * rank if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class Window:
    """``kernel`` elements ``dilation`` apart, every ``stride`` elements, from ``padding`` before the first one on.

    One number for each of the last dims. With ``ceil_mode`` the windows reach past the padding at the end by less than
    a stride.
    """

    kernel: tuple[Dim, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @classmethod
    def over(
        cls, space: int, kernel: Sequence[Dim], stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,), ceil_mode: bool = False,
    ) -> Window:  # fmt: skip
        """The window of an op over ``space`` dims; without a stride, windows touch."""
        kernel = spread(kernel, space)
        steps = spread(stride, space, kernel)
        return cls(kernel, steps, spread(padding, space), spread(dilation, space), ceil_mode)

    def along(self, first: int, end: int | None = None) -> Window:
        """The window of one dim alone, or of the dims from the first to before the end."""
        part = slice(first, first + 1 if end is None else end)
        return Window(self.kernel[part], self.stride[part], self.padding[part], self.dilation[part], self.ceil_mode)


def padded(b: Expander, x: Value, window: Window, value: float = 0) -> Value:
    """The last dims with the padding around them, and at the end what windows reach past it.

    In ceil mode there is then room for one window more than PyTorch has in a dim, when that one would begin in the
    padding: ``fitted`` drops it.
    """
    lead = (0,) * (x.rank - len(window.kernel))
    over = [step - 1 if window.ceil_mode else 0 for step in window.stride]
    high = [p + o for p, o in zip(window.padding, over, strict=True)]
    if not any(high):
        return x
    padding = b.scalar(convert_number(value, x.dtype), x.dtype)
    return b.emit("pad", x, padding, low=(*lead, *window.padding), high=(*lead, *high))[0]


def slide(b: Expander, x: Value, dim: int, window: Window) -> Value:
    """The windows over the dims from ``dim`` on of a padded ``x``; their elements become the last dims."""
    if not all(isinstance(size, int) for size in window.kernel):
        for axis in range(len(window.kernel)):
            x = _gathered(b, x, dim + axis, window.along(axis))
        return x
    dims = tuple(range(dim, dim + len(window.kernel)))
    return b.windows(x, dims=dims, kernel=window.kernel, stride=window.stride, dilation=window.dilation)


def _gathered(b: Expander, x: Value, dim: int, window: Window) -> Value:
    """``slide`` over one dim, for a kernel of run-time size."""
    (kernel,), (stride,), (dilation,) = window.kernel, window.stride, window.dilation
    count = floordiv(x.shape[dim] - (kernel - 1) * dilation - 1, stride) + 1
    taken = b.gather(x, _elements(b, (count, kernel), (stride, dilation), 0), dims=(dim,))
    return b.transpose(taken, (*range(2, dim + 2), 0, *range(dim + 2, taken.rank), 1))


def _elements(b: Expander, shape: Sequence[Dim], steps: Sequence[int], before: int) -> Value:
    """Places: the sum of the indices, each times a step, less what is before the first one."""
    shape = tuple(shape)
    total = b.full(-before, shape, dt.int64)
    for d, (size, step) in enumerate(zip(shape, steps, strict=True)):
        index = b.iota(size=size, dtype=dt.int64)
        total = b.add(total, b.broadcast(b.mul(index, const(b, index, step)), shape, (d,)))
    return total


def fitted(b: Expander, x: Value, first: int, sizes: Sequence[Dim]) -> Value:
    """The begin of ``x``, of these sizes in the dims from ``first`` on."""
    for dim, size in enumerate(sizes, first):
        x = b.slice(x, dim, 0, size)
    return x


def overlapped(b: Expander, x: Value, lead: Dim, counts: Sequence[Dim], sizes: Sequence[Dim], window: Window) -> Value:
    """[lead, *kernel, *counts], in any shape -> [lead, *sizes]: every element added where ``slide`` would read it."""
    space, kernel = len(sizes), window.kernel
    for axis in reversed(range(space)):
        # [lead and earlier kernel dims, kernel, earlier window dims, windows, done] -> kernel and windows side by side
        rows, columns = product((lead, *kernel[:axis])), product(counts[:axis])
        x = b.reshape(x, (rows, kernel[axis], columns, counts[axis], product(sizes[axis + 1 :])))
        x = overlapped_along(b, b.transpose(x, (0, 2, 1, 3, 4)), 2, sizes[axis], window.along(axis))
    return b.reshape(x, (lead, *sizes))


def overlapped_along(b: Expander, x: Value, dim: int, size: Dim, window: Window) -> Value:
    """``overlapped`` for one dim: [kernel, windows] at ``dim`` and the next one -> [size] at ``dim``."""
    before, count, after = x.shape[:dim], x.shape[dim + 1], x.shape[dim + 2 :]
    lead, rest = product(before), product(after)
    if not isinstance(kernel := window.kernel[0], int):
        steps = (window.dilation[0], window.stride[0])
        index = _elements(b, (kernel, count), steps, window.padding[0])
        # What is outside belongs to the padding: it is dropped. [kernel, windows, lead, rest] -> [size, lead, rest]
        updates = b.transpose(b.reshape(x, (lead, *index.shape, rest)), (1, 2, 0, 3))
        into = b.full(convert_number(0, x.dtype), (size, lead, rest), x.dtype)
        out = b.transpose(write(b, into, updates, [index], [0], "add"), (1, 0, 2))
    elif isinstance(size, int) and isinstance(count, int):
        out = blend(b, b.reshape(x, (lead, kernel * count, rest)), 1, _reading(size, count, kernel, window))
    else:
        out = _shifted(b, b.reshape(x, (lead, kernel, count, rest)), size, kernel, window)
    return b.reshape(out, (*before, size, *after))


def _reading(size: int, count: int, kernel: int, window: Window) -> list[list[tuple[int, float]]]:
    """For each element, the windows that read it and the place in them, as indices into [kernel, windows]."""
    (stride,), (padding,), (dilation,) = window.stride, window.padding, window.dilation
    rows: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for place, at in itertools.product(range(kernel), range(count)):
        element = at * stride + place * dilation - padding
        if 0 <= element < size:
            rows[element].append((place * count + at, 1.0))
    return rows


def _shifted(b: Expander, x: Value, size: Dim, kernel: int, window: Window) -> Value:
    """[lead, kernel, windows, rest] -> [lead, size, rest], for sizes of run time.

    Row k belongs k dilations further on. Rows ``dilation`` longer than the result, one after the other, read as rows
    of the result's length, are shifted that way; then they are added up.
    """
    (stride,), (padding,), (dilation,) = window.stride, window.padding, window.dilation
    lead, _, count, rest = x.shape
    apart = -(-kernel * dilation // stride) if kernel > 1 else 0  # zeros after a row, in strides
    zero = b.scalar(convert_number(0, x.dtype), x.dtype)
    if apart or stride > 1:
        x = b.reshape(x, (lead, kernel, count, 1, rest))
        x = b.emit("pad", x, zero, low=(0,) * 5, high=(0, 0, apart, stride - 1, 0))[0]
    length = (count + apart) * stride
    if kernel > 1:
        x = b.reshape(x, (lead, kernel * length, rest))
        length = length - dilation
        x = b.slice(x, 1, 0, kernel * length)
    x = b.reduce(b.reshape(x, (lead, kernel, length, rest)), "sum", (1,))
    missing = padding + size - length
    if isinstance(missing, int) and missing > 0:
        x = b.emit("pad", x, zero, low=(0, 0, 0), high=(0, missing, 0))[0]
    return b.slice(x, 1, padding, padding + size)
