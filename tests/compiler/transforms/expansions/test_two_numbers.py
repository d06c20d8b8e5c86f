"""Functions of two numbers against eager: gcd to the longest of Euclid's runs; complex log-add-exp, ldexp."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_gcd(agrees: Agrees, dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    fibonacci = [1, 2]
    while sum(fibonacci[-2:]) <= info.max:
        fibonacci.append(sum(fibonacci[-2:]))
    numbers = [0, 1, 2, 6, 12, 35, 97, info.max, info.max - 1, info.min, *fibonacci[-4:]]
    if info.min:
        numbers += [-1, -6, -fibonacci[-1], info.min + 1, info.min + 2]
    x = torch.tensor(numbers, dtype=dtype)
    agrees(torch.gcd, x[:, None], x)
    agrees(torch.lcm, torch.arange(12).to(dtype)[:, None], torch.arange(10).to(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logarithms_of_complex_sums(agrees: Agrees, dtype: torch.dtype) -> None:
    x = torch.tensor([complex(re, im) for re in (0.0, 1.0, -2.5, 30.0) for im in (0.0, 2.0, -1.25)], dtype=dtype)
    agrees(torch.logaddexp, x[:, None], x)
    pairs = torch.stack(torch.broadcast_tensors(x[:, None], x))
    agrees(lambda x: torch.logsumexp(x, 0), x)
    agrees(lambda x: torch.logsumexp(x, (0, 1), keepdim=True), pairs)
    agrees(lambda x: torch.logsumexp(x, (0, 1)), x[:0].reshape(0, 3))
    agrees(lambda x: torch.logsumexp(x, ()), x[0])


def test_infinities_in_logarithms_of_complex_sums() -> None:
    parts = (0.0, 1.0, math.inf, -math.inf, math.nan)
    x = torch.tensor([complex(re, im) for re in parts for im in (0.0, 2.0, -1.25)], dtype=torch.complex64)
    y = x[:, None]
    got, expected = compile(torch.logaddexp, (x, y), target="linalg")(x, y), torch.logaddexp(x, y)
    torch.testing.assert_close(got.real, expected.real, equal_nan=True)
    torch.testing.assert_close(got.imag, expected.imag, equal_nan=True)


@pytest.mark.parametrize("exponent", [torch.int32, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.int64])
def test_ldexp_of_mixed_numbers(agrees: Agrees, dtype: torch.dtype, exponent: torch.dtype) -> None:
    x, power = torch.tensor([1.0, -3.0, 0.0, 7.0]).to(dtype), torch.tensor([0.0, 5.0, -3.0, 2.0]).to(exponent)
    agrees(torch.ldexp, x[:, None].expand(4, 4), power)
    agrees(torch.ldexp, x, power[1])
    agrees(torch.ldexp, torch.tensor([3.0, -5.5], dtype=torch.float64), torch.tensor(4.55).to(exponent))


SMALLER = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("exponent", SMALLER)
@pytest.mark.parametrize("dtype", SMALLER)
def test_ldexp_of_a_number_of_another_dtype(agrees: Agrees, dtype: torch.dtype, exponent: torch.dtype) -> None:
    for power in (3.3, 20.0, 16.5, -20.0):
        for x in (torch.tensor([0.5, 1.7, 1.0]), torch.tensor(0.5)):
            agrees(torch.ldexp, x.to(dtype), torch.tensor(power).to(exponent))
