"""Distances between rows and their gradients against eager, for every norm; equal rows, batches, a single row."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile

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
        agrees(lambda g, x, y, d: aten._cdist_backward(g, x, y, p, d), distances.cos(), x, y, distances)
    nothing, y = torch.ones(0, 4, 3, dtype=dtype), torch.ones(3, 5, dtype=dtype)  # one matrix and no matrices
    agrees(lambda g, x, y, d: aten._cdist_backward(g, x, y, p, d), nothing.mT, y, nothing.new_ones(0, 4, 5), nothing.mT)


@pytest.mark.parametrize("p", NORMS)
def test_two_dtypes_where_there_is_nothing_to_compute(agrees: Agrees, p: float) -> None:
    for x, y in ((torch.ones(0, 5), torch.ones(4, 5)), (torch.ones(3, 5), torch.ones(0, 5)), (torch.ones(3, 0),) * 2):
        agrees(lambda x, y: torch.cdist(x, y, p), x, y.bfloat16())


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("width", [3, 9])
def test_numbers_that_are_not_finite(p: float, width: int) -> None:
    nan, inf = math.nan, math.inf
    x = torch.tensor([[1, 2, 0.3], [1, inf, 2], [nan, 1, 1], [-inf, inf, 0], [nan, nan, nan]]).repeat(1, width // 3)
    y = torch.tensor([[1, 2, 0.4], [1, inf, 3], [nan, 0, 0], [0, 0, 1]]).repeat(1, width // 3)
    for program, args in ((lambda x, y: torch.cdist(x, y, p), (x, y)), (lambda x: torch.pdist(x, p), (x,))):
        got = compile(program, args, target="linalg")(*args)
        torch.testing.assert_close(got, program(*args), equal_nan=True)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_within_one_tensor(agrees: Agrees, p: float, rows: int) -> None:
    for x in (_rows(rows, 4), _rows(rows, 1), _rows(rows, 4, dtype=torch.float64)):
        agrees(lambda x: aten._pdist_forward(x, p), x)
        distances = aten._pdist_forward(x, p)
        agrees(lambda g, x, d: aten._pdist_backward(g, x, p, d), distances.cos(), x, distances)
