"""Sums and products of which a bool is asked: whether one is true, whether all are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

Agrees = Callable[..., None]
X = torch.tensor([[2.0, 0.5, 1.0], [0.0, -0.0, math.nan], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize("op", [torch.sum, torch.prod, torch.nansum])
def test_of_bools(agrees: Agrees, op: Any, dtype: torch.dtype) -> None:
    x = X.nan_to_num().to(dtype) if dtype != torch.float32 else X
    for y in (x, x[:, :0], x[:, :2]):
        agrees(lambda y: op(y, 1, dtype=torch.bool), y)
        agrees(lambda y: op(y, dtype=torch.bool), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-30, 1.0, 1e25, 3e37])
def test_spread_is_computed_where_squares_stay_in_range(agrees: Agrees, size: float, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).mul(size)
    x = torch.complex(x[:, :2], x[:, 2:]) if dtype.is_complex else x.to(dtype)
    for op in (torch.var_mean, torch.std_mean):
        root = op(x, 1)[0]
        if root.isfinite().all():  # a complex one adds the variances of its parts up in float32
            agrees(lambda x, op=op, root=root: op(x, 1)[0] / root, x)
        agrees(lambda x, op=op: op(x, 1, correction=0)[1] / (size or 1.0), x)
    agrees(lambda x: torch.std(x, 1), torch.tensor([[math.inf, 1.0], [math.nan, 1.0], [3e38, -3e38], [1.0, 1.0]]))


def test_a_norm_of_nothing_is_0_whatever_its_order(agrees: Agrees) -> None:
    for order in (math.nan, 0.5, 3.0):
        for x in (torch.ones(0), torch.ones(3, 0), torch.ones(3, 2)):
            agrees(lambda x, order=order: torch.linalg.vector_norm(x, order, dim=-1), x)
