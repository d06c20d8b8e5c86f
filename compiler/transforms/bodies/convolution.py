"""Convolution as a contraction over windows."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Shape
from torchstone.compiler.ops.composite import FIRST, LAST, to_channels_first, to_channels_last
from torchstone.compiler.transforms.expansions.common import convert_number
from torchstone.compiler.transforms.expansions.nn.windows import Window, slide
from torchstone.compiler.transforms.rules import Expander, body


@body("flat.convolution")
def convolution(
    b: Expander, x: Value, weight: Value, *bias: Value, stride: tuple[int, ...], low: tuple[int, ...],
    high: tuple[int, ...], dilation: tuple[int, ...], groups: int, channels: str,
) -> Value:  # fmt: skip
    if channels == LAST:
        first = to_channels_first(x.rank)
        x, weight = b.transpose(x, first), b.transpose(weight, first)
        window = {"stride": stride, "low": low, "high": high, "dilation": dilation}
        out = b.convolution(x, weight, *bias, **window, groups=groups, channels=FIRST)
        return b.transpose(out, to_channels_last(out.rank))
    shape = b.type.dims
    if 0 in (*x.shape, *weight.shape, *shape):
        out = b.full(convert_number(0, x.dtype), shape, x.dtype)
    else:
        if any((*low, *high)):
            zero = b.scalar(convert_number(0, x.dtype), x.dtype)
            x = b.emit("pad", x, zero, low=(0, 0, *low), high=(0, 0, *high))[0]
        out = _contracted(b, x, weight, stride, dilation, groups, shape)
    return b.add(out, b.broadcast(bias[0], shape, (1,))) if bias else out


def _contracted(
    b: Expander, x: Value, weight: Value, stride: tuple[int, ...], dilation: tuple[int, ...], groups: int, shape: Shape
) -> Value:
    """[n, c, *space], [o, c / g, *kernel] -> [n, o, *windows]."""
    space = len(stride)
    kernel = weight.shape[2:]
    if groups > 1:
        # A dim of their own, where there are several: targets hold tensors of few dims.
        x = b.reshape(x, (shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
        weight = b.reshape(weight, (groups, shape[1] // groups, *weight.shape[1:]))
    first = x.rank - space
    rows = slide(b, x, first, Window(kernel, stride, (0,) * space, dilation))
    # [g, o / g, c / g, *kernel] with [n, g, c / g, *windows, *kernel] -> [g, o / g, n, *windows]
    out = b.contract(
        weight, rows,
        a_batch=(0,) if groups > 1 else (), b_batch=(1,) if groups > 1 else (),
        a_sum=tuple(range(weight.rank - space - 1, weight.rank)), b_sum=(first - 1, *range(x.rank, rows.rank)),
    )  # fmt: skip
    batch = out.rank - space - 1
    return b.reshape(b.transpose(out, (batch, *range(batch), *range(batch + 1, out.rank))), shape)
