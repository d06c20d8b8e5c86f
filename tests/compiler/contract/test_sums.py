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
