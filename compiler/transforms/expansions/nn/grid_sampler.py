"""Sampling an image at the points of a grid, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.expansions.core.join import concat
from torchstone.compiler.transforms.expansions.indexing.index import read, zeros
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.expansions.nn.grid_points import Axis, Taps, cubic, linear, nearest
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2


class _Pixels:
    """The pixels that the points of a grid are made of: [N, points…, taps…], and values of theirs [N, …, C].

    The last dim of the grid holds a point, its coordinate along the last dim of the image first.
    """

    def __init__(
        self, b: Expander, image: Value, grid: Value, mode: int, padding: int, align_corners: bool, wide: DType,
        backward: bool = False,
    ) -> None:  # fmt: skip
        self.b, self.image = b, image
        self.space = image.rank - 2
        if mode not in (_BILINEAR, _NEAREST, _BICUBIC):  # eager leaves its result unwritten
            raise b.unsupported(f"the interpolation mode {mode}")
        if mode == _BICUBIC and self.space != 2:
            raise b.unsupported("bicubic over three dims")
        taps_of = {_BILINEAR: linear, _NEAREST: nearest, _BICUBIC: cubic}[mode]
        self.axes: list[Axis] = []
        self.taps: list[Taps] = []
        for d, size in enumerate(image.shape[2:]):
            self.axes.append(Axis(b, size, padding, align_corners, self.space, backward))
            coordinate = b.slice(grid, grid.rank - 1, self.space - 1 - d, self.space - d)
            self.taps.append(taps_of(b, self.axes[-1], coordinate, wide))
        self.points = grid.shape[:-1]
        self.shape = (*self.points, *(t.index.shape[-1] for t in self.taps))
        batch = b.broadcast(b.iota(size=self.shape[0], dtype=dt.int64), self.shape, (0,))
        self.indices = [batch, *(self._spread(t.index, d) for d, t in enumerate(self.taps))]
        self.dims = [0, *range(2, image.rank)]

    def _spread(self, v: Value, d: int) -> Value:
        rank = len(self.points)
        return self.b.broadcast(v, self.shape, (*range(rank), rank + d))

    def over_channels(self, v: Value) -> Value:
        return self.b.broadcast(v, (*self.shape, self.image.shape[1]), tuple(range(v.rank)))

    def values(self) -> Value:
        """The pixels, 0 outside the image."""
        b = self.b
        value = read(b, self.image, self.indices, self.dims)
        inside = reduce(
            b.and_,
            (self._spread(a.inside(t.index), d) for d, (a, t) in enumerate(zip(self.axes, self.taps, strict=True))),
        )
        return b.select(self.over_channels(inside), value, const(b, value, 0))

    def weights(self, moving: int | None = None) -> Value | None:
        """The weight of each pixel, or how it changes with the place along the dim ``moving``."""
        factors = [t.slope if d == moving else t.weight for d, t in enumerate(self.taps)]
        # The last dim's weight first, as in eager's products.
        spread = [self._spread(v, d) for d, v in reversed([*enumerate(factors)]) if v is not None]
        return reduce(self.b.mul, spread) if spread else None

    def beyond_first(self, value: Value, d: int) -> Value:
        """How much more the taps along a dim are than the first one, where that cannot overflow.

        Slopes add up to 0, so that it makes no difference, but an even image then has a gradient of 0, exactly.
        """
        b, dim = self.b, len(self.points) + d
        first = b.slice(value, dim, 0, 1)
        small = const(b, first, 2.0**100 if first.dtype == dt.float32 else 2.0**900)
        first = b.select(b.lt(b.abs(first), small), first, const(b, first, 0))
        return b.sub(value, b.broadcast(first, value.shape, tuple(range(value.rank))))

    def summed(self, value: Value) -> Value:
        """The sum over the taps."""
        rank = len(self.points)
        return self.b.reduce(value, "sum", tuple(range(rank, rank + self.space)))

    def summed_by_rows(self, value: Value) -> Value:
        """The weighted sum over the taps along the last dim, and then over those along the one before.

        So does eager's cubic kernel: which sum overflows, and what is lost beside large terms that cancel, goes by it.
        """
        b, rank = self.b, len(self.points)
        for d in reversed(range(self.space)):
            weight = self.taps[d].weight
            assert weight is not None
            value = b.mul(value, b.broadcast(weight, value.shape, (*range(rank), rank + d)))
            value = self._in_turn(value, rank + d)
        return value

    def summed_in_turn(self, value: Value) -> Value:
        """The sum over the taps, rounded after each of them.

        So do eager's kernels of 3-d images and of 16-bit floats, and of terms that cancel only the roundings are left.
        """
        count = math.prod(int(t.index.shape[-1]) for t in self.taps)  # type: ignore[arg-type]
        row = self.b.reshape(value, (*self.points, count, *value.shape[len(self.shape) :]))
        return self._in_turn(row, len(self.points))

    def _in_turn(self, value: Value, dim: int) -> Value:
        b, shape = self.b, (*value.shape[:dim], *value.shape[dim + 1 :])
        terms = [b.reshape(b.slice(value, dim, k, k + 1), shape) for k in range(int(value.shape[dim]))]  # type: ignore[arg-type]
        return reduce(b.add, terms, const(b, terms[0], 0))


@expands("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(b: Expander, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """The weighted sum of the pixels around each point."""
    if 0 in b.type.dims:
        return zeros(b, b.type.dims, x.dtype)
    pixels = _Pixels(b, x, grid, mode, padding, align_corners, x.dtype)
    value, weight = pixels.values(), pixels.weights()
    if weight is None:  # one pixel, as it is
        out = b.reshape(value, (*pixels.points, x.shape[1]))
    elif mode == _BICUBIC:
        out = pixels.summed_by_rows(value)
    else:
        terms = b.mul(value, pixels.over_channels(weight))
        out = pixels.summed_in_turn(terms) if pixels.space == 3 or x.dtype.is_half else pixels.summed(terms)
    return b.transpose(out, (0, out.rank - 1, *range(1, out.rank - 1)))


@expands("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    b: Expander, grad: Value, x: Value, grid: Value, mode: int, padding: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value]:  # fmt: skip
    """Of the image: what a point gets goes back to its pixels by their weights. Of the grid: how the weights move."""
    if 0 in grad.shape:
        return (zeros(b, x.shape, x.dtype) if output_mask[0] else None), zeros(b, grid.shape, grid.dtype)
    wide = opmath(x.dtype)
    pixels = _Pixels(b, x, grid, mode, padding, align_corners, wide, backward=True)
    grad = b.transpose(b.cast(grad, wide), (0, *range(2, grad.rank), 1))
    weight = pixels.weights()
    of_image = None
    by_channel = (*range(len(pixels.points)), len(pixels.shape))
    if output_mask[0]:
        updates = b.broadcast(grad, (*pixels.shape, x.shape[1]), by_channel)
        updates = updates if weight is None else b.mul(updates, pixels.over_channels(weight))
        of_image = write(b, zeros(b, x.shape, x.dtype), b.cast(updates, x.dtype), pixels.indices, pixels.dims, "add")
    if weight is None:
        return of_image, zeros(b, grid.shape, grid.dtype)
    values = b.cast(pixels.values(), wide)
    parts: list[Value] = []
    for d in reversed(range(pixels.space)):
        slope, speed = pixels.weights(moving=d), pixels.taps[d].speed
        assert slope is not None and speed is not None
        # In the order of eager's kernels: a large pixel that counts for little is not to overflow.
        terms = b.mul(pixels.beyond_first(values, d), pixels.over_channels(slope))
        if mode == _BILINEAR and pixels.space == 2:
            terms = b.mul(pixels.summed(terms), grad)
        else:
            terms = pixels.summed(b.mul(terms, b.broadcast(grad, values.shape, by_channel)))
        part = b.reduce(terms, "sum", (grad.rank - 1,))
        parts.append(b.mul(b.reshape(part, (*pixels.points, 1)), speed))
    return of_image, b.cast(concat(b, parts, grid.rank - 1), grid.dtype)
