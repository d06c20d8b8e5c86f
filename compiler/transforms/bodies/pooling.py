"""Pooling as reductions of windows, one dim after the other."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ops.composite import FIRST, LAST, to_channels_first, to_channels_last
from torchstone.compiler.transforms.expansions.common import const, convert_number
from torchstone.compiler.transforms.expansions.nn.pooling import least
from torchstone.compiler.transforms.expansions.nn.windows import Window, slide
from torchstone.compiler.transforms.rules import Expander, body

Sizes = tuple[int, ...]


@body("flat.max_pool", "flat.average_pool")
def pool(
    b: Expander, x: Value, *, kernel: Sizes, stride: Sizes, low: Sizes, high: Sizes, dilation: Sizes | None = None,
    channels: str,
) -> Value:  # fmt: skip
    name = b.op.name.removeprefix("flat.")
    if channels == LAST:
        window = {key: value for key, value in b.op.attributes.items() if key != "channels"}
        (out,) = b.emit(name, b.transpose(x, to_channels_first(x.rank)), **window, channels=FIRST)
        return b.transpose(out, to_channels_last(out.rank))
    if 0 in b.type.dims:
        return b.full(convert_number(0, x.dtype), b.type.dims, x.dtype)
    window = Window(kernel, stride, low, dilation or (1,) * len(kernel))
    average = name == "average_pool"
    out = _around(b, x, (0, 0, *low), (0, 0, *high), 0 if average else least(x.dtype))
    for axis in range(len(kernel)):
        out = b.reduce(slide(b, out, 2 + axis, window.along(axis)), "sum" if average else "max", (out.rank,))
    return b.div(out, _counts(b, out, window, x.shape[2:], high)) if average else out


def _around(b: Expander, x: Value, low: Sizes, high: Sizes, value: float) -> Value:
    if not any((*low, *high)):
        return x
    number = b.scalar(convert_number(value, x.dtype), x.dtype)
    return b.emit("pad", x, number, low=low, high=high)[0]


def _counts(b: Expander, out: Value, window: Window, sizes: Sequence[Dim], high: Sizes) -> Value:
    """How many elements of the tensor each window has."""
    counts = const(b, out, 1)
    for axis, size in enumerate(sizes):
        one = window.along(axis)
        if not any((*one.padding, high[axis])):
            counts = b.mul(counts, const(b, out, one.kernel[0]))
            continue
        ones = _around(b, b.full(convert_number(1, out.dtype), (size,), out.dtype), one.padding, (high[axis],), 0)
        count = b.reduce(slide(b, ones, 0, one), "sum", (1,))
        counts = b.mul(counts, b.broadcast(count, out.shape, (2 + axis,)))
    return counts
