"""Where the points of a grid lie in an image, and the pixels they are made of, one dim at a time.

GridSamplerKernel.cpp (2-d) and GridSampler.cpp (3-d) of ATen/native. Coordinates and weights are computed in the dtype
of the image, rounded at each step, as eager does. Where a coordinate is no number the two kernels differ, and so do the
rules here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, is_nan, tensor
from torchstone.compiler.transforms.expansions.core.join import concat
from torchstone.compiler.transforms.expansions.indexing.index import bound
from torchstone.compiler.transforms.rules import Expander

ZEROS, BORDER, REFLECTION = 0, 1, 2
# What eager's 3-d kernel puts for a coordinate that is no number, far outside every image.
NOWHERE = -100.0


@dataclass(frozen=True)
class Axis:
    """How grid coordinates become places along one dim of the image."""

    b: Expander
    size: Dim
    padding: int
    align_corners: bool
    space: int
    backward: bool = False

    def number(self, like: Value, size: Dim, over: int = 1) -> Value:
        """A size, or a part of it, with the shape and dtype of ``like``."""
        if isinstance(size, int):
            return const(self.b, like, size / over)
        whole = tensor(self.b, size, like.dtype)
        part = whole if over == 1 else self.b.div(whole, const(self.b, whole, over))
        return self.b.broadcast(part, like.shape, ())

    @property
    def reach(self) -> Dim:
        """From the center of the first pixel to that of the last one, or from edge to edge."""
        return self.size - 1 if self.align_corners else self.size

    @property
    def low(self) -> float:
        """Where the image begins."""
        return 0.0 if self.align_corners else -0.5

    def place(self, grid: Value) -> Value:
        """The fractional place: -1 and 1 are the centers of the corner pixels, or their outer edges."""
        b = self.b
        shifted = b.add(grid, const(b, grid, 1))
        if self.space == 2:
            scale = self.number(grid, self.reach, over=2)
            return b.mul(shifted, scale) if self.align_corners else self._fused(shifted, scale, 0.5)
        if self.align_corners:
            return b.mul(b.div(shifted, const(b, grid, 2)), self.number(grid, self.reach))
        scaled = b.sub(b.mul(shifted, self.number(grid, self.reach)), const(b, grid, 1))
        return b.div(scaled, const(b, grid, 2))

    def _fused(self, x: Value, factor: Value, less: float) -> Value:
        """``x * factor - less``, rounded once: eager's kernel is compiled so, and near 0 it tells.

        The leading digits of a number that a point in the image has are few, and so are those of the factor.
        """
        b = self.b
        once = b.sub(b.mul(x, factor), const(b, x, less))
        if x.dtype.is_half:
            return once
        step = const(b, x, 2.0**11 if x.dtype == dt.float32 else 2.0**26)
        high = b.div(b.trunc(b.mul(x, step)), step)
        high, low = (b.mul(v, factor) for v in (high, b.sub(x, high)))
        exact = b.add(b.sub(high, const(b, x, less)), low)
        return b.select(b.lt(b.abs(x), step), exact, once)

    def padded(self, place: Value) -> Value:
        """A place beyond the border is moved onto it, or mirrored at it as often as needed."""
        b = self.b
        if self.padding == REFLECTION:
            place = self._clipped(self._reflected(place)[0])
        elif self.padding == BORDER:
            place = self._clipped(place)
        if self.space == 3:
            finite = b.lt(b.abs(place), const(b, place, math.inf))
            place = b.select(finite, place, const(b, place, NOWHERE))
        return place

    def _clipped(self, place: Value) -> Value:
        b = self.b
        last = self.number(place, self.size - 1)
        zero = const(b, place, 0)
        clipped = b.min(b.max(place, zero), last)
        if self.space == 3 and self.backward:  # no number stays none, though the value is the last pixel's
            return clipped
        return b.select(is_nan(b, place), zero if self.space == 2 else last, clipped)

    def _reflected(self, place: Value) -> tuple[Value, Value]:
        """A place mirrored as often as needed, and whether it then moves backward."""
        b = self.b
        least, whole = const(b, place, self.low), self.number(place, self.reach)
        distance = b.sub(place, least)
        below = b.lt(distance, const(b, place, 0))
        if self.reach == 0:
            return const(b, place, 0), below
        distance = b.abs(distance)
        if self.space == 2:
            twice = self.number(place, 2 * self.reach)
            extra = b.sub(distance, b.mul(b.trunc(b.div(distance, twice)), twice))
            other = b.sub(twice, extra)
            odd, extra = b.gt(extra, other), b.min(extra, other)
        else:
            extra = b.rem(distance, whole)
            odd = b.eq(b.rem(b.floor(b.div(distance, whole)), const(b, place, 2)), const(b, place, 1))
            extra = b.select(odd, b.sub(whole, extra), extra)
        return self._nowhere_to_go(b.add(extra, least)), b.xor(odd, below)

    def _nowhere_to_go(self, place: Value) -> Value:
        """In an image of one pixel there is one place."""
        if isinstance(self.reach, int):
            return place
        zero = const(self.b, place, 0)
        return self.b.select(self.b.eq(self.number(place, self.reach), zero), zero, place)

    def index(self, whole: Value) -> Value:
        """A whole place as int64; all that are outside by more than one, or are no number, are -2."""
        b = self.b
        near = b.and_(b.ge(whole, const(b, whole, -1)), b.le(whole, self.number(whole, self.size)))
        return b.cast(b.select(near, whole, const(b, whole, -2)), dt.int64)

    def inside(self, index: Value) -> Value:
        b = self.b
        return b.and_(b.ge(index, const(b, index, 0)), b.lt(index, bound(b, index, self.size)))

    def slope(self, place: Value) -> Value:
        """How fast the padded place moves with the grid coordinate: not at all beyond the border, or on it."""
        b = self.b
        scale = self.number(place, self.reach, over=2)
        if self.padding == ZEROS:
            return scale
        if self.padding == REFLECTION:
            place, back = self._reflected(place)
            scale = b.select(back, b.neg(scale), scale)
        moves = b.and_(b.gt(place, const(b, place, 0)), b.lt(place, self.number(place, self.size - 1)))
        return b.select(moves, scale, const(b, place, 0))


@dataclass(frozen=True)
class Taps:
    """The pixels along one dim that make up a point, [points…, taps], with their weights and how these move with the
    place; and how fast that moves with the grid coordinate, [points…, 1]. The one nearest pixel has none of them."""

    index: Value
    weight: Value | None = None
    slope: Value | None = None
    speed: Value | None = None


def nearest(b: Expander, axis: Axis, grid: Value, wide: DType) -> Taps:
    return Taps(axis.index(b.round(axis.padded(axis.place(grid)))))


def linear(b: Expander, axis: Axis, grid: Value, wide: DType) -> Taps:
    """The pixel below and the one above, each weighted by how near it is; the weights in the dtype ``wide``."""
    given = axis.place(grid)
    place = axis.padded(given)
    below = b.floor(place)
    index = axis.index(below)
    upper = b.cast(b.sub(place, below), wide)
    lower = b.sub(const(b, upper, 1), upper)
    last = place.rank - 1
    return Taps(
        concat(b, [index, b.add(index, const(b, index, 1))], last),
        concat(b, [lower, upper], last),
        concat(b, [const(b, upper, -1), const(b, upper, 1)], last),
        b.cast(axis.slope(given), wide),
    )


def cubic(b: Expander, axis: Axis, grid: Value, wide: DType) -> Taps:
    """Four pixels around a point, each brought into the image by itself."""
    place = axis.place(grid)
    below = b.floor(place)
    last = place.rank - 1
    four = concat(b, [b.add(below, const(b, below, k - 1)) for k in range(4)], last)
    weights, slopes = cubic_weights(b, b.cast(b.sub(place, below), wide))
    places = axis.padded(four)
    if place.dtype == dt.float64:  # mirrored from afar they are halves: eager rounds float64's, and cuts off float32's
        places = b.round(places)
    speed = axis.number(weights[0], axis.reach, over=2)
    return Taps(axis.index(places), concat(b, weights, last), concat(b, slopes, last), speed)


def cubic_weights(b: Expander, t: Value) -> tuple[list[Value], list[Value]]:
    """Weights of the four elements around a point (Keys' kernel, a = -0.75), and their derivatives."""
    a = -0.75

    def polynomial(x: Value, *coefficients: float) -> Value:
        out = const(b, x, coefficients[0])
        for c in coefficients[1:]:
            out = b.mul(out, x)
            out = b.add(out, const(b, x, c)) if c else out
        return out

    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one = const(b, t, 1)
    at = ((far, b.add(t, one), 1), (near, t, 1), (near, b.sub(one, t), -1), (far, b.sub(const(b, t, 2), t), -1))
    weights = [polynomial(x, *kernel) for kernel, x, _ in at]
    slopes = [polynomial(x, *(sign * (3 - n) * c for n, c in enumerate(kernel[:3]))) for kernel, x, sign in at]
    return weights, slopes
