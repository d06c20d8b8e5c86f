"""Sampling an image at the points of a grid: GridSamplerKernel.cpp (2-d) and GridSampler.cpp (3-d) of ATen/native.

Everything is computed in the dtype of the image, rounded at each step, as eager does. Where a coordinate is no number
the two kernels differ, and so do the rules here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.compiler.contract.expansions.common import const, is_nan
from torchstone.compiler.contract.expansions.indexing import read, zeros
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


class _Sampler:
    """Reads the image [N, C, …] at [N, …] places; what it gives is [N, …, C]."""

    def __init__(self, b: Expander, image: Value, axes: Sequence[_Axis], like: Value) -> None:
        self.b = b
        self.image = image
        self.axes = axes
        self.batch = b.broadcast(b.iota(size=like.shape[0], dtype=dt.int64), like.shape, (0,))

    def at(self, index: Sequence[Value]) -> Value:
        """The pixels at these places, 0 outside."""
        b = self.b
        value = read(b, self.image, [self.batch, *index], [0, *range(2, self.image.rank)])
        inside: Value | None = None
        for axis, i in zip(self.axes, index, strict=True):
            here = axis.inside(i)
            inside = here if inside is None else b.and_(inside, here)
        assert inside is not None
        return b.select(self.over_channels(inside), value, const(b, value, 0))

    def over_channels(self, v: Value) -> Value:
        return self.b.broadcast(v, (*v.shape, self.image.shape[1]), tuple(range(v.rank)))

    def weighted(self, value: Value, weight: Value) -> Value:
        return self.b.mul(value, self.over_channels(weight))


@expands("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(b: Expander, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """The last dim of the grid holds a point, its coordinate along the last dim of the image first."""
    if 0 in b.type.dims:
        return zeros(b, b.type.dims, x.dtype)
    space = x.rank - 2
    if mode == _BICUBIC and space != 2:
        raise b.unsupported("bicubic over three dims")
    axes: list[_Axis] = []
    places: list[Value] = []
    for d, size in enumerate(x.shape[2:]):
        if not isinstance(size, int):
            raise b.unsupported("an image of run-time size")
        axis = _Axis(b, size, padding, align_corners, space)
        coordinate = b.slice(grid, grid.rank - 1, space - 1 - d, space - d)
        axes.append(axis)
        places.append(axis.place(b.reshape(coordinate, grid.shape[:-1])))
    sampler = _Sampler(b, x, axes, places[0])
    sample = {_BILINEAR: _linear, _NEAREST: _nearest, _BICUBIC: _cubic}[mode]
    out = sample(b, sampler, places)
    return b.transpose(out, (0, out.rank - 1, *range(1, out.rank - 1)))


def _nearest(b: Expander, sampler: _Sampler, places: Sequence[Value]) -> Value:
    return sampler.at([a.index(b.round(a.padded(p))) for a, p in zip(sampler.axes, places, strict=True)])


def _linear(b: Expander, sampler: _Sampler, places: Sequence[Value]) -> Value:
    """The corners of the cell around a point, each weighted by how near it is."""
    corners: list[tuple[tuple[Value, Value], ...]] = []
    for axis, place in zip(sampler.axes, places, strict=True):
        place = axis.padded(place)
        below = b.floor(place)
        index = axis.index(below)
        upper = b.sub(place, below)
        lower = b.sub(const(b, upper, 1), upper)
        corners.append(((index, lower), (b.add(index, const(b, index, 1)), upper)))
    total: Value | None = None
    for corner in itertools.product(*corners):
        weight = corner[-1][1]
        for _, factor in reversed(corner[:-1]):
            weight = b.mul(weight, factor)
        part = sampler.weighted(sampler.at([index for index, _ in corner]), weight)
        total = part if total is None else b.add(total, part)
    assert total is not None
    return total


def _cubic(b: Expander, sampler: _Sampler, places: Sequence[Value]) -> Value:
    """Four by four pixels around a point, each brought into the image by itself: along rows, then along columns."""
    indices: list[list[Value]] = []
    weights: list[list[Value]] = []
    for axis, place in zip(sampler.axes, places, strict=True):
        below = b.floor(place)
        indices.append([axis.index(axis.padded(b.add(below, const(b, below, k - 1)))) for k in range(4)])
        weights.append(_cubic_weights(b, b.sub(place, below)))

    def blended(parts: Sequence[Value], by: Sequence[Value]) -> Value:
        total = sampler.weighted(parts[0], by[0])
        for part, weight in zip(parts[1:], by[1:], strict=True):
            total = b.add(total, sampler.weighted(part, weight))
        return total

    rows, columns = indices
    return blended([blended([sampler.at([row, c]) for c in columns], weights[1]) for row in rows], weights[0])


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
