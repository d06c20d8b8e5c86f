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


@pytest.mark.parametrize("p", [*NORMS, 1e-39])
def test_the_distance_of_two_numbers_is_computed_by_powers_too(p: float) -> None:
    x = torch.tensor([[2.0], [0.0], [1e30], [1e-30], [-1e30]])
    for program in (lambda x: torch.cdist(x, x[:2], p), lambda x: torch.pdist(x, p)):
        torch.testing.assert_close(compile(program, (x,), target="linalg")(x), program(x))


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_within_one_tensor(agrees: Agrees, p: float, rows: int) -> None:
    for x in (_rows(rows, 4), _rows(rows, 1), _rows(rows, 4, dtype=torch.float64)):
        agrees(lambda x: aten._pdist_forward(x, p), x)
        distances = aten._pdist_forward(x, p)
        agrees(lambda g, x, d: aten._pdist_backward(g, x, p, d), distances.cos(), x, distances)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients_of_distances_that_are_not_finite(p: float) -> None:
    def gradient(x: torch.Tensor, between: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(between(x).sum(), x)[0]

    def pairs(x: torch.Tensor) -> torch.Tensor:
        return gradient(x, lambda x: torch.nn.functional.pdist(x, p=p))

    def others(x: torch.Tensor) -> torch.Tensor:
        exact = "donot_use_mm_for_euclid_dist"
        return gradient(x, lambda x: torch.cdist(x, x.detach().flip(0), p=p, compute_mode=exact))

    inf, nan = math.inf, math.nan
    for rows in ([[inf, 1], [2, -1], [0.5, -inf]], [[nan, 1], [2, -1], [0.5, 3]], [[inf, 1], [inf, -1], [0.5, 3]]):
        x = torch.tensor(rows)
        for program in (pairs, others):
            torch.testing.assert_close(compile(program, (x,))(x), program(x), equal_nan=True)
