"""Resizing with antialiasing as weighted sums along two dims, for the rounding model.

Each is an ATen op of one step. Its weights are the values of a filter, by their sum, and near a zero of the filter a
correct one has few digits: a pixel with such a weight strays by many ULPs of its own. Taken apart, each step on the way
to a weight is rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Filter = tuple[Callable[[Tensor], Tensor], float]
"""The weight of a pixel at a distance, and the distance from which on it is 0."""

_A = -0.5
"""Of the cubic filter, that of Keys."""


def _triangle(x: Tensor) -> Tensor:
    return 1.0 - x


def _cubic(x: Tensor) -> Tensor:
    near = ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * _A
    return torch.where(x < 1.0, near, far)


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x == 0.0, 1.0, torch.sinc(x) * torch.sinc(x / 3.0))


_FILTERS: dict[str, Filter] = {
    "_upsample_bilinear2d_aa": (_triangle, 1.0),
    "_upsample_bicubic2d_aa": (_cubic, 2.0),
    "_upsample_lanczos2d_aa": (_lanczos, 3.0),
}


def _weights(of: Filter, before: int, after: int, corners: bool, scale: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """For each pixel of the result a row of weights, the pixels that are weighed, and which of these are in its window:
    windows at an edge are narrower than the rest."""
    function, reach = of
    if corners:
        step = (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        step = 1.0 / scale if scale else before / after
    support, squeezed = (reach * step, 1.0 / step) if step >= 1.0 else (reach, 1.0)
    centers = step * (torch.arange(after, dtype=torch.float64)[:, None] + 0.5)
    first, last = ((centers + side * support + 0.5).trunc().clamp(0, before) for side in (-1, 1))
    pixels = first + torch.arange(int((last - first).max()) if after else 0, dtype=torch.float64)
    windows = pixels < last
    distance = ((pixels - centers + 0.5) * squeezed).abs()
    weights = torch.where(windows & (distance < reach), function(distance), 0.0)
    return weights / weights.sum(1, keepdim=True), pixels.long().clamp(max=max(before - 1, 0)), windows


def _along_last(x: Tensor, weights: Tensor, pixels: Tensor, windows: Tensor) -> Tensor:
    """A pixel outside of a window is none of it: infinity times 0 would be NaN."""
    return torch.where(windows, x[..., pixels], 0.0).mul(weights).sum(-1)


def _resized(of: Filter, x: Tensor, size: Any, corners: bool, high: Any = None, wide: Any = None) -> Tensor:
    """Along a dim that keeps its size no pixel is weighed: NaN and infinity times weights of 0 would spread."""
    rows = x if x.shape[-1] == size[1] else _along_last(x, *_weights(of, x.shape[-1], size[1], corners, wide))
    if x.shape[-2] == size[0]:
        return rows
    return _along_last(rows.mT, *_weights(of, x.shape[-2], size[0], corners, high)).mT


def _gradient(
    of: Filter, grad: Tensor, size: Any, shape: Any, corners: bool, high: Any = None, wide: Any = None
) -> Tensor:
    rows, columns = (
        _matrix(before, *_weights(of, before, after, corners, scale))
        for before, after, scale in zip(shape[-2:], size, (high, wide), strict=True)
    )
    return rows.T @ grad @ columns


def _matrix(before: int, weights: Tensor, pixels: Tensor, windows: Tensor) -> Tensor:
    """The weights of all pixels, those outside of the windows 0."""
    return weights.new_zeros(len(weights), before).scatter_add(1, pixels, torch.where(windows, weights, 0.0))


@functools.cache
def antialiased_ops() -> dict[Any, Callable[..., Tensor]]:
    """The ops by overload, in float64."""
    aten = torch.ops.aten
    return {
        getattr(aten, f"{name}{end}").default: functools.partial(rule, of)
        for name, of in _FILTERS.items()
        for end, rule in (("", _resized), ("_backward", _gradient))
        if hasattr(aten, f"{name}{end}")
    }
