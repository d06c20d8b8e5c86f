"""float8: every code of every dtype, read, compared and multiplied, and written where it is rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.runtime.cpu.bridge import torch_dtype

FLOAT8 = [d for d in dt.DTYPES if d.is_float and d.bits == 8]


def codes(dtype: DType) -> torch.Tensor:
    return torch.arange(256).to(torch.uint8).view(torch_dtype(dtype))


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Assert the same codes, where every NaN is one."""
    assert got.dtype == want.dtype
    if got.dtype.itemsize == 1 and got.dtype.is_floating_point:
        nan = got.float().isnan() & want.float().isnan()
        assert torch.equal(got.view(torch.uint8)[~nan], want.view(torch.uint8)[~nan])
    else:
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def agrees(program: Callable[..., torch.Tensor], *args: torch.Tensor) -> None:
    same(compile(program, args)(*args), program(*args))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_numbers_between_two_codes_are_rounded(dtype: DType) -> None:
    """Each number of the dtype, what lies halfway to the next, and its float32 neighbours, of both signs."""
    kind = torch_dtype(dtype)
    values = codes(dtype).float()
    values = values[values.isfinite()].sort().values
    middle = (values[1:] + values[:-1]) / 2
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan, 3e38, -3e38, 1e-45, -0.0])
    up, down = middle.nextafter(torch.tensor(torch.inf)), middle.nextafter(torch.tensor(-torch.inf))
    x = torch.cat([values, middle, up, down, values * 1.5, ends])
    for source in (torch.float32, torch.float64, torch.bfloat16):
        agrees(lambda x: x.to(kind), x.to(source))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_arithmetic_after_a_cast_and_comparisons(dtype: DType) -> None:
    kind = torch_dtype(dtype)
    x = codes(dtype)
    y = x.view(torch.uint8).roll(37).view(kind)
    agrees(lambda x, y: (x.float() + y.float()).to(kind), x, y)
    agrees(lambda x, y: x.half() * y.bfloat16(), x, y)
    for program in (torch.eq, torch.ne, lambda x, y: x == 0, lambda x, y: x.isnan(), lambda x, y: x.bool()):
        agrees(program, x, y)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_a_product_is_rounded_once(dtype: DType) -> None:
    x = codes(dtype)
    y = x.view(torch.uint8).roll(91).view(x.dtype)
    same(compile(torch.mul, (x, y))(x, y), (x.float() * y.float()).to(x.dtype))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_moving_keeps_the_codes(dtype: DType) -> None:
    x = codes(dtype).view(16, 16)
    index = torch.tensor([3, 0, 15])

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.t()[i], x[i].roll(1, 1), torch.where(x[:3].float() > 1, x[:3], x[3:6])])

    same(compile(program, (x, index))(x, index), program(x, index))
