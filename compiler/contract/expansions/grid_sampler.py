"""Sampling an image at the points of a grid: GridSamplerKernel.cpp (2-d) and GridSampler.cpp (3-d) of ATen/native.

Coordinates and weights are computed in the dtype of the image, rounded at each step, as eager does. Where a coordinate
is no number the two kernels differ, and so do the rules here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from torchstone.compiler.contract.expansions.common import const, is_nan
from torchstone.compiler.contract.expansions.indexing import read, zeros
from torchstone.compiler.contract.expansions.join import concat
from torchstone.compiler.contract.expansions.scatter import write
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
# What eager's 3-d kernel puts for a coordinate that is no number, far outside every image.
_NOWHERE = -100.0


@dataclass(frozen=True)
class _Axis:
    """How grid coordinates become places along one dim of the image."""

    b: Expander
    size: int
    padding: int
    align_corners: bool
    space: int

    def place(self, grid: Value) -> Value:
        """The fractional place: -1 and 1 are the centers of the corner pixels, or their outer edges."""
        b, size = self.b, self.size
        shifted = b.add(grid, const(b, grid, 1))
        if self.space == 2:
            scaled = b.mul(shifted, const(b, grid, (size - 1 if self.align_corners else size) / 2))
            return scaled if self.align_corners else b.sub(scaled, const(b, grid, 0.5))
        if self.align_corners:
            return b.mul(b.div(shifted, const(b, grid, 2)), const(b, grid, size - 1))
        scaled = b.sub(b.mul(shifted, const(b, grid, size)), const(b, grid, 1))
        return b.div(scaled, const(b, grid, 2))

    def padded(self, place: Value) -> Value:
        """A place beyond the border is moved onto it, or mirrored at it as often as needed."""
        b = self.b
        if self.padding == _REFLECTION:
            place = self._clipped(self._reflected(place))
        elif self.padding == _BORDER:
            place = self._clipped(place)
        if self.space == 3:
            finite = b.lt(b.abs(place), const(b, place, math.inf))
            place = b.select(finite, place, const(b, place, _NOWHERE))
        return place

    def _clipped(self, place: Value) -> Value:
        b = self.b
        last = const(b, place, self.size - 1)
        zero = const(b, place, 0)
        clipped = b.min(b.max(place, zero), last)
        return b.select(is_nan(b, place), zero if self.space == 2 else last, clipped)

    def _reflected(self, place: Value) -> Value:
        b = self.b
        low, span = (0.0, self.size - 1) if self.align_corners else (-0.5, self.size)
        if span == 0:
            return const(b, place, 0)
        least, whole = const(b, place, low), const(b, place, span)
        distance = b.abs(b.sub(place, least))
        if self.space == 2:
            twice = const(b, place, 2 * span)
            extra = b.sub(distance, b.mul(b.trunc(b.div(distance, twice)), twice))
            return b.add(b.min(extra, b.sub(twice, extra)), least)
        extra = b.rem(distance, whole)
        flips = b.floor(b.div(distance, whole))
        odd = b.eq(b.rem(flips, const(b, place, 2)), const(b, place, 1))
        return b.add(b.select(odd, b.sub(whole, extra), extra), least)

    def index(self, whole: Value) -> Value:
        """A whole place as int64; all that are outside by more than one, or are no number, are -2."""
        b = self.b
        near = b.and_(b.ge(whole, const(b, whole, -1)), b.le(whole, const(b, whole, self.size)))
        return b.cast(b.select(near, whole, const(b, whole, -2)), dt.int64)

    def inside(self, index: Value) -> Value:
        b = self.b
        return b.and_(b.ge(index, const(b, index, 0)), b.lt(index, const(b, index, self.size)))


@dataclass(frozen=True)
class _Taps:
    """The pixels along one dim that make up a point: [points…, taps]. Without weights there is one, as it is."""

    index: Value
    weight: Value | None


@expands("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(b: Expander, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """The last dim of the grid holds a point, its coordinate along the last dim of the image first."""
    if 0 in b.type.dims:
        return zeros(b, b.type.dims, x.dtype)
    space = x.rank - 2
    if mode == _BICUBIC and space != 2:
        raise b.unsupported("bicubic over three dims")
    taps_of = {_BILINEAR: _linear, _NEAREST: _nearest, _BICUBIC: _cubic}[mode]
    axes: list[_Axis] = []
    taps: list[_Taps] = []
    for d, size in enumerate(x.shape[2:]):
        if not isinstance(size, int):
            raise b.unsupported("an image of run-time size")
        axes.append(_Axis(b, size, padding, align_corners, space))
        coordinate = b.slice(grid, grid.rank - 1, space - 1 - d, space - d)
        taps.append(taps_of(b, axes[-1], axes[-1].place(coordinate)))
    out = _blended(b, x, axes, taps)
    return b.transpose(out, (0, out.rank - 1, *range(1, out.rank - 1)))


def _blended(b: Expander, x: Value, axes: Sequence[_Axis], taps: Sequence[_Taps]) -> Value:
    """The weighted sum of the pixels around each point, those outside the image 0: [N, points…, C]."""
    points = taps[0].index.shape[:-1]
    shape = (*points, *(t.index.shape[-1] for t in taps))

    def spread(v: Value, d: int) -> Value:
        return b.broadcast(v, shape, (*range(len(points)), len(points) + d))

    batch = b.broadcast(b.iota(size=shape[0], dtype=dt.int64), shape, (0,))
    index = [spread(t.index, d) for d, t in enumerate(taps)]
    inside = reduce(
        b.and_, (spread(axis.inside(t.index), d) for d, (axis, t) in enumerate(zip(axes, taps, strict=True)))
    )
    value = read(b, x, [batch, *index], [0, *range(2, x.rank)])
    value = b.select(b.broadcast(inside, value.shape, tuple(range(len(shape)))), value, const(b, value, 0))
    # The last dim's weight first, as in eager's products.
    weights = [spread(t.weight, d) for d, t in reversed([*enumerate(taps)]) if t.weight is not None]
    if weights:
        weight = reduce(b.mul, weights)
        value = b.mul(value, b.broadcast(weight, value.shape, tuple(range(len(shape)))))
    return _summed(b, value, len(points), len(axes))


def _summed(b: Expander, value: Value, rank: int, space: int) -> Value:
    """The sum over the taps, in order; 16-bit floats are rounded at each step, as a scatter does."""
    if not value.dtype.is_half:
        return b.reduce(value, "sum", tuple(range(rank, rank + space)))
    shape = value.shape[: rank + space]
    index = [b.broadcast(b.iota(size=size, dtype=dt.int64), shape, (d,)) for d, size in enumerate(shape[:rank])]
    into = zeros(b, (*shape[:rank], value.shape[-1]), value.dtype)
    return write(b, into, value, index, range(rank), "add")


def _nearest(b: Expander, axis: _Axis, place: Value) -> _Taps:
    return _Taps(axis.index(b.round(axis.padded(place))), None)


def _linear(b: Expander, axis: _Axis, place: Value) -> _Taps:
    """The pixel below and the one above, each weighted by how near it is."""
    place = axis.padded(place)
    below = b.floor(place)
    index = axis.index(below)
    upper = b.sub(place, below)
    lower = b.sub(const(b, upper, 1), upper)
    last = place.rank - 1
    return _Taps(
        concat(b, [index, b.add(index, const(b, index, 1))], last),
        concat(b, [lower, upper], last),
    )


def _cubic(b: Expander, axis: _Axis, place: Value) -> _Taps:
    """Four pixels around a point, each brought into the image by itself."""
    below = b.floor(place)
    last = place.rank - 1
    wide = concat(b, [b.add(below, const(b, below, k - 1)) for k in range(4)], last)
    return _Taps(axis.index(axis.padded(wide)), concat(b, _cubic_weights(b, b.sub(place, below)), last))


def _cubic_weights(b: Expander, t: Value) -> list[Value]:
    """Weights of the four elements around a point (Keys' kernel, a = -0.75)."""
    a = -0.75

    def number(v: float) -> Value:
        return const(b, t, v)

    def near(x: Value) -> Value:
        inner = b.sub(b.mul(number(a + 2), x), number(a + 3))
        return b.add(b.mul(b.mul(inner, x), x), number(1))

    def far(x: Value) -> Value:
        inner = b.sub(b.mul(number(a), x), number(5 * a))
        return b.sub(b.mul(b.add(b.mul(inner, x), number(8 * a)), x), number(4 * a))

    one = number(1)
    return [far(b.add(t, one)), near(t), near(b.sub(one, t)), far(b.sub(number(2), t))]
