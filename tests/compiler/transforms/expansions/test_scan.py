"""Cumulative ops against eager: dtypes, NaN, zeros of both signs, empty and 0-d tensors, lengths known at run time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SPECIAL = torch.tensor([[1, 3, 3, math.nan, 5, math.nan], [-math.inf, -1, -0.0, 0.0, -0.0, math.inf]])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("op", [torch.cumsum, torch.cumprod])
def test_sums_and_products(agrees: Agrees, op: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 0, 3, 1], [2, 2, 2, 1, 1], [100, 100, 3, 2, 90]]).to(dtype)
    for dim in (0, -1):
        agrees(lambda x, d=dim: op(x, d), x)
    for tensor in (x[0, 0], x[:0], x[:, :0]):
        agrees(lambda x: op(x, 0), tensor)
    if not dtype.is_complex:
        agrees(lambda x: op(x, 1, dtype=torch.bfloat16), x)
        agrees(lambda x: op(x, 1, dtype=torch.int16), x)
        agrees(lambda x: op(x, 1, dtype=torch.bool), x[:0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [torch.cummax, torch.cummin])
def test_extremes_and_their_last_index(agrees: Agrees, op: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 1, 3, 0, 4, 4], [2, 2, 5, 1, 1, 5]]).to(dtype)
    for tensor in (x, SPECIAL.to(dtype)) if dtype.is_floating_point else (x,):
        for dim in (0, -1):
            agrees(lambda x, d=dim: op(x, d), tensor)
    for tensor in (x[0, 0], x[:0], x[:, :0]):
        agrees(lambda x: op(x, 0), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_logcumsumexp(agrees: Agrees, dtype: torch.dtype) -> None:
    for tensor in (SPECIAL, torch.tensor([[-math.inf, -math.inf, 1000, -1000, 3]]), torch.randn(3, 9), SPECIAL[0, 1]):
        agrees(lambda x: torch.logcumsumexp(x, -1), tensor.to(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logcumsumexp_of_complex_numbers_goes_round_as_often_as_eager(agrees: Agrees, dtype: torch.dtype) -> None:
    x = torch.randn(4, 9, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 4
    for tensor in (x, x[0, 0], x[:0], x[:, :0]):
        for dim in (0, -1):
            agrees(lambda x, d=dim: torch.logcumsumexp(x, d), tensor)
    special = torch.tensor([complex(-math.inf, 1), complex(-math.inf, 2), 3 + 4j, complex(math.inf, 1), 2], dtype=dtype)
    got = compile(lambda x: torch.logcumsumexp(x, 0), (special,), target="linalg")(special)
    torch.testing.assert_close(got, torch.logcumsumexp(special, 0), equal_nan=True)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_lengths_known_at_run_time(target: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.cumsum(0), x.cumprod(0), x.cummax(0), x.cummin(0), x.logcumsumexp(0), (x + 1j).logcumsumexp(0)

    compiled = compile(program, (torch.rand(4, 3),), target=target, dynamic_shapes=({0: Dim("n", min=2)},))
    for size in (2, 7, 33):
        x = torch.randint(-3, 4, (size, 3)).float()
        torch.testing.assert_close(compiled(x), program(x))
