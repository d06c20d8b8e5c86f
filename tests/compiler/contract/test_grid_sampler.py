"""grid_sample against eager, with points inside and outside, at borders and at no place at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

Agrees = Callable[..., None]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_points(agrees: Agrees, dtype: torch.dtype, space: int, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    image, grid = torch.randn(2, 3, *range(4, 4 + space)), torch.rand(2, *[4] * space, space) * 5 - 2.5
    for mode in ("bilinear", "nearest", "bicubic")[: 5 - space]:
        agrees(lambda x, g, m=mode: F.grid_sample(x, g, m, padding, align), image.to(dtype), grid.to(dtype), slack=10.0)


@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_coordinates_that_are_no_place(agrees: Agrees, space: int, padding: str, align: bool) -> None:
    line = torch.tensor([NAN, INF, -INF, 1e30, 3e9, 0.5, -0.0, 1.0, -1.0])
    grid = torch.stack(torch.meshgrid(*[line] * space, indexing="ij"), -1)[None]
    image = torch.randn(1, 2, *range(3, 3 + space))
    for mode in ("bilinear", "nearest", "bicubic")[: 5 - space]:
        agrees(lambda x, g, m=mode: F.grid_sample(x, g, m, padding, align), image, grid, slack=10.0)


def test_an_image_of_one_pixel(agrees: Agrees) -> None:
    grid = torch.rand(1, 4, 4, 2) * 3 - 1.5
    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            agrees(lambda x, g, p=padding, a=align: F.grid_sample(x, g, "bilinear", p, a), torch.ones(1, 1, 1, 1), grid)
