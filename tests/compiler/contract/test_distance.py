"""Distances between rows and their gradients against eager, for every norm; equal rows, batches, a single row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Agrees = Callable[..., None]
aten = torch.ops.aten
NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))


def _rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)
    x[..., 1:2, :] = x[..., :1, :]  # two rows are equal
    return x


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_between_two_tensors(agrees: Agrees, p: float, dtype: torch.dtype) -> None:
    for x, y in ((_rows(3, 4), _rows(5, 4)), (_rows(2, 1, 3, 4), _rows(3, 5, 4)), (_rows(3, 2), _rows(3, 2))):
        x, y = x.to(dtype), y.to(dtype)
        distances = aten._cdist_forward(x, y, p, None)
        agrees(lambda g, x, y, d: aten._cdist_backward(g, x, y, p, d), distances.cos(), x, y, distances, slack=16.0)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_within_one_tensor(agrees: Agrees, p: float, rows: int) -> None:
    for x in (_rows(rows, 4), _rows(rows, 1), _rows(rows, 4, dtype=torch.float64)):
        agrees(lambda x: aten._pdist_forward(x, p), x)
        distances = aten._pdist_forward(x, p)
        agrees(lambda g, x, d: aten._pdist_backward(g, x, p, d), distances.cos(), x, distances, slack=16.0)
