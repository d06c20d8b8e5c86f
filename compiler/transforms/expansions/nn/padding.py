"""Gradients of padding by elements of the tensor: each goes back to the element that was repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import convert_number
from torchstone.compiler.transforms.expansions.nn.pooling import zero_results
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

Fold = Callable[[Value, int, Dim, bool], tuple[Value, Dim]]
"""From a pad's gradient, its dim, the tensor's size and whether it is at the end: what is added, and from where on."""


def _summed(b: Expander) -> Fold:
    """Of the border element, repeated."""

    def fold(part: Value, dim: int, size: Dim, at_end: bool) -> tuple[Value, Dim]:
        one = (*part.shape[:dim], 1, *part.shape[dim + 1 :])
        return b.reshape(b.reduce(part, "sum", (dim,)), one), size - 1 if at_end else 0

    return fold


def _mirrored(b: Expander) -> Fold:
    """Of the elements next to the border one, mirrored at it."""

    def fold(part: Value, dim: int, size: Dim, at_end: bool) -> tuple[Value, Dim]:
        return b.reverse(part, dims=(dim,)), size - 1 - part.shape[dim] if at_end else 1

    return fold


def _unpad(b: Expander, grad: Value, x: Value, padding: Sequence[Dim], fold: Fold) -> tuple[Value, ...]:
    """Padding is given for the last dim first, before and after; a negative one cuts."""
    if 0 in x.shape or 0 in grad.shape:
        return zero_results(b)
    out = b.cast(grad, opmath(grad.dtype))
    for axis, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        dim = x.rank - 1 - axis
        out = _unpad_one(b, out, dim, x.shape[dim], before, after, fold)
    return (b.cast(out, b.type.dtype),)


def _unpad_one(b: Expander, grad: Value, dim: int, size: Dim, before: Dim, after: Dim, fold: Fold) -> Value:
    if not isinstance(before, int) or not isinstance(after, int):
        raise b.unsupported("padding by a run-time number")
    cut_low, cut_high = max(-before, 0), max(-after, 0)
    if cut_low or cut_high:  # what was cut off has no gradient, in the tensor or in the padding of the other side
        grad = _among_zeros(b, grad, dim, cut_low, cut_high)
    count, shape = grad.shape[dim], (*grad.shape[:dim], size, *grad.shape[dim + 1 :])
    start, limit = max(before, 0), count - max(after, 0)

    out = b.fit(b.slice(grad, dim, start, limit), shape)
    if before > 0:
        part, low = fold(b.slice(grad, dim, 0, before), dim, size, False)
        out = b.add(out, b.fit(_among_zeros(b, part, dim, low, size - low - part.shape[dim]), shape))
    if after > 0:
        part, low = fold(b.slice(grad, dim, limit, count), dim, size, True)
        out = b.add(out, b.fit(_among_zeros(b, part, dim, low, size - low - part.shape[dim]), shape))
    return out


def _among_zeros(b: Expander, part: Value, dim: int, low: Dim, high: Dim) -> Value:
    lows, highs = (tuple(n if d == dim else 0 for d in range(part.rank)) for n in (low, high))
    zero = b.scalar(convert_number(0, part.dtype), part.dtype)
    return b.emit("pad", part, zero, low=lows, high=highs)[0]


@expands(
    "aten.replication_pad1d_backward.default", "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default",
)  # fmt: skip
def replication_pad_backward(b: Expander, grad: Value, x: Value, padding: Sequence[Dim]) -> tuple[Value, ...]:
    return _unpad(b, grad, x, padding, _summed(b))


@expands(
    "aten.reflection_pad1d_backward.default", "aten.reflection_pad2d_backward.default",
    "aten.reflection_pad3d_backward.default",
)  # fmt: skip
def reflection_pad_backward(b: Expander, grad: Value, x: Value, padding: Sequence[Dim]) -> tuple[Value, ...]:
    return _unpad(b, grad, x, padding, _mirrored(b))
