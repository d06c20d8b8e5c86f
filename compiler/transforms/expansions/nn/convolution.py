"""Convolution and its gradients: contractions over windows, and windows summed where they overlap.

Tensors stay within six dims, the most that TOSA has, but for windows that are read in place and nowhere stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir.dims import Dim, Shape
from torchstone.compiler.ops.composite import FIRST
from torchstone.compiler.transforms.expansions.common import convert_number
from torchstone.compiler.transforms.expansions.nn.windows import Window, fitted, overlapped, padded, slide
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.convolution.default")
def convolution(
    b: Expander, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """Every output element is a sum over input channels and positions in the window: torch.nn.functional.conv2d.

    Transposed, it is that sum's transpose: every input element, times the kernel, is added into the output.
    """
    window = _window(b, x, weight, stride, padding, dilation)
    wide, shape = opmath(x.dtype), b.type.dims
    x, weight = b.cast(x, wide), b.cast(weight, wide)
    bias = None if bias is None else b.cast(bias, wide)
    if not transposed:
        return b.cast(_plain(b, x, weight, bias, window, groups, shape), b.type.dtype)
    out = _transposed(b, x, weight, window, groups, shape)
    return b.cast(out if bias is None else b.add(out, b.broadcast(bias, shape, (1,))), b.type.dtype)


@expands("aten.convolution_backward.default")
def convolution_backward(
    b: Expander, grad: Value, x: Value, weight: Value, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    mask: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    """The gradients of input, weight and bias. The input's is the other convolution, with the same weight."""
    window = _window(b, x, weight, stride, padding, dilation)
    if x.dtype != weight.dtype:  # which eager takes where there is no image
        raise b.unsupported(f"{x.dtype} with a weight of {weight.dtype}")
    dtype, wide = x.dtype, opmath(x.dtype)
    grad, x, weight = (b.cast(v, wide) for v in (grad, x, weight))
    of_x = None
    if mask[0]:
        other = (window, groups, x.shape)
        of_x = _plain(b, grad, weight, None, *other) if transposed else _transposed(b, grad, weight, *other)
    image, output = (grad, x) if transposed else (x, grad)
    of_weight = _of_weight(b, image, output, window, groups, weight.shape) if mask[1] else None
    of_bias = b.reduce(grad, "sum", (0, *range(2, grad.rank))) if mask[2] else None
    return tuple(v if v is None else b.cast(v, dtype) for v in (of_x, of_weight, of_bias))


def _window(
    b: Expander, x: Value, weight: Value, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Window:
    if x.dtype.is_bool or x.rank < 3 or x.rank != weight.rank:
        raise b.unsupported(f"{x.type} with a weight {weight.type}")
    return Window.over(weight.rank - 2, weight.shape[2:], stride, padding, dilation)


def _plain(
    b: Expander, x: Value, weight: Value, bias: Value | None, window: Window, groups: int, shape: Shape
) -> Value:
    """[n, c, *space], [o, c / g, *kernel] -> [n, o, *windows], or as many windows as ``shape`` has."""
    if 0 in (*x.shape, *weight.shape, *shape):
        out = b.full(convert_number(0, x.dtype), shape, x.dtype)
        return out if bias is None else b.add(out, b.broadcast(bias, shape, (1,)))
    padding = {"low": window.padding, "high": window.padding}
    operands = (x, weight) if bias is None else (x, weight, bias)
    out = b.convolution(
        *operands, stride=window.stride, **padding, dilation=window.dilation, groups=groups, channels=FIRST
    )
    return fitted(b, out, 2, shape[2:])


def _columns(b: Expander, x: Value, window: Window, counts: Shape) -> Value:
    """[n, c, *space] -> [n, windows, c * elements]; two dims at once, of three each."""
    x = padded(b, x, window)
    step = len(counts) if len(counts) <= 2 else 1
    for axis in range(0, len(counts), step):
        end = axis + step
        rows = fitted(b, slide(b, x, 2 + axis, window.along(axis, end)), 2 + axis, counts[axis:end])
        batch, channels, *space = rows.shape[: x.rank]
        inner, size = (1, *range(x.rank, rows.rank)), channels * product(window.kernel[axis:end])
        if end == len(counts):
            return b.reshape(b.transpose(rows, (0, *range(2, x.rank), *inner)), (batch, product(space), size))
        x = b.reshape(b.transpose(rows, (0, *inner, *range(2, x.rank))), (batch, size, *space))
    raise AssertionError(counts)


def _repeated(b: Expander, weight: Value, batch: Dim, groups: int, shape: Shape) -> Value:
    """[o, …] -> [n * g, *shape]: as a batch dim, the images come first in the contraction's result."""
    if groups == 1:
        return b.broadcast(b.reshape(weight, shape), (batch, *shape))
    if batch == 1:
        return b.reshape(weight, (groups, *shape))
    copies = b.broadcast(b.reshape(weight, (groups, product(shape))), (batch, groups, product(shape)))
    return b.reshape(copies, (batch * groups, *shape))


def _transposed(b: Expander, x: Value, weight: Value, window: Window, groups: int, shape: Shape) -> Value:
    """[n, c, *windows], [c, o / g, *kernel] -> [n, o, *space]."""
    if 0 in (*x.shape, *weight.shape, *shape):
        return b.full(convert_number(0, x.dtype), shape, x.dtype)
    batch, inputs, windows = x.shape[0], x.shape[1] // groups, x.shape[2:]
    image = b.reshape(x, (batch * groups, inputs, product(windows)))
    kernel = _repeated(b, weight, batch, groups, (inputs, product(weight.shape[1:])))
    columns = b.contract(kernel, image, a_batch=(0,), b_batch=(0,), a_sum=(1,), b_sum=(1,))
    # [n * g, o / g * elements, windows]
    return b.reshape(overlapped(b, columns, shape[0] * shape[1], windows, shape[2:], window), shape)


def _of_weight(b: Expander, image: Value, output: Value, window: Window, groups: int, shape: Shape) -> Value:
    """[n, i, *space], [n, o, *windows] -> [o, i / g, *kernel]: what each kernel element is multiplied with, summed."""
    if 0 in (*image.shape, *output.shape, *shape):
        return b.full(convert_number(0, image.dtype), shape, image.dtype)
    batch, inner, outer = image.shape[0], image.shape[1] // groups, output.shape[1] // groups
    # The groups come first: [g, n, …].
    image = b.reshape(image, (batch, groups, inner, *image.shape[2:]))
    image = b.reshape(b.transpose(image, (1, 0, *range(2, image.rank))), (groups * batch, inner, *image.shape[3:]))
    columns = _columns(b, image, window, output.shape[2:])
    columns = b.reshape(columns, (groups, batch, *columns.shape[1:]))
    output = b.reshape(output, (batch, groups, outer, columns.shape[2]))
    out = b.contract(output, columns, a_batch=(1,), b_batch=(0,), a_sum=(0, 3), b_sum=(1, 2))
    return b.reshape(out, shape)  # from [g, o / g, i / g * elements]
