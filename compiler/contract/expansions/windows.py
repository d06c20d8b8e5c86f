"""Windows sliding over the last dims, as one strided slice for each position in the window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchstone.compiler.contract.expansions.common import convert_number
from torchstone.compiler.contract.rules import Expander
from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim

# Above this many positions in a window, a windowed primitive is what is wanted.
MOST_POSITIONS = 256


def spread(values: Sequence[int], rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """A window argument for each dim: PyTorch takes one number for all dims, or none for the default."""
    values = tuple(values) or tuple(default)
    return values * rank if len(values) == 1 else values


def static_size(size: Dim) -> int:
    """A size that the caller knows to be static."""
    assert isinstance(size, int), size
    return size


@dataclass(frozen=True, slots=True)
class Axis:
    """How windows lie along one dim: ``count`` windows of ``kernel`` elements ``dilation`` apart, ``stride`` apart."""

    size: Dim
    count: Dim
    kernel: int
    stride: int
    low: int
    dilation: int = 1

    @property
    def reach(self) -> Dim:
        """The elements from the begin of the first window to the end of the last."""
        return (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1


def axes(
    x: Value, counts: Sequence[Dim], kernel: Sequence[int], stride: Sequence[int], low: Sequence[int],
    dilation: Sequence[int],
) -> list[Axis]:  # fmt: skip
    """The axes of the last dims of ``x``."""
    sizes = x.shape[x.rank - len(counts) :]
    return [Axis(*row) for row in zip(sizes, counts, kernel, stride, low, dilation, strict=True)]


def padded(b: Expander, x: Value, along: Sequence[Axis], value: float) -> Value:
    """``x`` padded, or cut, so that the windows begin at its first element and end at its last."""
    first = x.rank - len(along)
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for dim, axis in enumerate(along, first):
        before, after = axis.low, axis.reach - axis.size - axis.low
        if before < 0:
            x, before = b.slice(x, dim, -before, x.shape[dim]), 0
        low[dim] = before
        if isinstance(after, int) and after < 0:
            # What no window reaches; cut before padding, unless the cut goes into the padding.
            x = b.slice(x, dim, 0, x.shape[dim] + after)
        else:
            high[dim] = after
    if not any(v != 0 for v in (*low, *high)):
        return x
    padding = b.scalar(convert_number(value, x.dtype), x.dtype)
    return b.emit("pad", x, padding, low=tuple(low), high=tuple(high))[0]


def positions(b: Expander, x: Value, along: Sequence[Axis]) -> Iterator[tuple[tuple[int, ...], Value]]:
    """For each position in the window, in row-major order: the element there of every window of the padded ``x``."""
    total = 1
    for axis in along:
        total *= axis.kernel
    if total > MOST_POSITIONS:
        raise b.unsupported(f"windows of {total} elements, more than {MOST_POSITIONS}")
    first = x.rank - len(along)
    for position in itertools.product(*(range(axis.kernel) for axis in along)):
        start: list[Dim] = [0] * first
        limit = list(x.shape[:first])
        stride = [1] * first
        for at, axis in zip(position, along, strict=True):
            start.append(at * axis.dilation)
            limit.append(at * axis.dilation + (axis.count - 1) * axis.stride + 1)
            stride.append(axis.stride)
        yield position, b.emit("slice", x, start=tuple(start), limit=tuple(limit), stride=tuple(stride))[0]


def stretched(b: Expander, x: Value, dim: int, stride: int) -> Value:
    """``stride - 1`` zeros between the elements along ``dim``."""
    if stride == 1:
        return x
    shape, size = x.shape, x.shape[dim]
    x = b.reshape(x, (*shape[:dim], size, 1, *shape[dim + 1 :]))
    none = (0,) * x.rank
    zero = b.scalar(convert_number(0, x.dtype), x.dtype)
    x = b.emit("pad", x, zero, low=none, high=(*none[: dim + 1], stride - 1, *none[dim + 2 :]))[0]
    x = b.reshape(x, (*shape[:dim], size * stride, *shape[dim + 1 :]))
    return b.slice(x, dim, 0, (size - 1) * stride + 1)
