"""Sizes at which the target changes its method: products of matrices, long rows, sizes free at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import torchstone
from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.linalg.contraction import LEAST_WORK

Program = Callable[..., Tensor]


def _random(dtype: torch.dtype, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape) + shape[0])
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-9, 9, shape, generator=generator).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, dtype=wide, generator=generator).to(dtype)


def _is_near(got: Tensor, program: Program, *args: Tensor) -> None:
    """Assert equality of integers; of others, an error of few roundings of the sum of the terms' sizes."""
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        assert torch.equal(got, program(*args))
        return
    wide = [a.to(torch.complex128 if a.is_complex() else torch.float64) for a in args]
    exact, sizes = program(*wide), program(*(a.abs() for a in wide))
    # Sums of any order stay within the number of terms times half a unit; those of random signs far within.
    summing = torch.finfo(torch.float32 if got.itemsize == 2 else got.dtype).eps
    bound = 64 * summing * sizes.abs() + torch.finfo(got.dtype).eps * exact.abs()
    assert ((got.to(exact.dtype) - exact).abs() <= bound).all()


# The multiply-adds of the first of each pair are one row fewer than the second's, which reach the limit.
AROUND: dict[str, tuple[Program, Callable[[int], tuple[tuple[int, ...], ...]], int]] = {
    "a product": (torch.mm, lambda rows: ((rows, 64), (64, 32)), 64 * 32),
    "transposed": (lambda x, y: x.t() @ y.t(), lambda rows: ((64, rows), (32, 64)), 64 * 32),
    "a batch": (torch.bmm, lambda rows: ((4, rows, 32), (4, 32, 16)), 4 * 32 * 16),
    "a linear layer": (functional.linear, lambda rows: ((rows, 128), (16, 128)), 128 * 16),
}


@pytest.mark.few(15)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", AROUND)
def test_products_around_the_least_work_of_tiles(name: str, dtype: torch.dtype) -> None:
    program, shapes, work = AROUND[name]
    limit = LEAST_WORK // work
    for rows in (limit - 1, limit, limit + 1):
        args = tuple(_random(dtype, *shape) for shape in shapes(rows))
        exe = compile(program, args)
        assert ("vector.fma" in exe.ir["linalg"]) == (rows >= limit and dtype in (torch.float32, torch.float64))
        _is_near(exe(*args), program, *args)


ROWS: dict[str, Program] = {
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "two results of a row": lambda x: x.exp().sum(-1, keepdim=True) + x.amax(-1, keepdim=True) * x,
    "over the other dim": lambda x: x.softmax(0) + x.sum(0),
}


@pytest.mark.parametrize("shape", [(3, 1023), (3, 1024), (2, 1025), (2, 3, 4099)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_long_rows(name: str, shape: tuple[int, ...]) -> None:
    program = ROWS[name]
    for dtype in (torch.float32, torch.float64):
        x = _random(dtype, *shape)
        exact = program(x.double())
        bound = 16 * torch.finfo(dtype).eps * exact.abs().max()
        assert ((compile(program, (x,))(x).double() - exact).abs() <= bound).all()


# Each program of two matrices, compiled at one size and run at others: int64 and complex are branches of their own.
FREE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "arithmetic": lambda x, y: (x * y - x, torch.add(x, y, alpha=2), x == y),
    "scans": lambda x, y: (x.cumsum(0), x[:, :2].cumprod(1)),
    "sums": lambda x, y: (x.sum(0), x.sum(), x[:, :2].prod(1)),
    "a product": lambda x, y: x @ y.t(),
    "moving": lambda x, y: (
        torch.cat([x, y]),
        x.flip(0),
        x.roll(1, 0),
        x.t().reshape(-1),
        torch.stack([x, y]).diagonal(),
    ),
    "places": lambda x, y: (x.index_select(0, torch.tensor([1, 0])), x.index_add(0, torch.tensor([0, 1]), y[:2])),
    "norms": lambda x, y: (x - y).abs().double().mean(1),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_sizes_free_at_run_time(name: str, dtype: torch.dtype) -> None:
    program, rows, columns = FREE[name], torch.export.Dim("rows", min=2), torch.export.Dim("columns", min=4)
    shapes = ({0: rows, 1: columns},) * 2
    example = _random(dtype, 4, 5), _random(dtype, 4, 5) + 1
    exe = torchstone.compile(program, example, "linalg", dynamic_shapes=shapes)
    for size in ((4, 5), (2, 4), (7, 70), (65, 4)):
        args = _random(dtype, *size), _random(dtype, *size) + 1
        room = 1e-4 if dtype.is_complex else 0.0
        torch.testing.assert_close(exe(*args), program(*args), rtol=room, atol=room)
