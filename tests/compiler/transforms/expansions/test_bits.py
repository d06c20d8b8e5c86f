"""Ops on the bits of numbers against eager, which is exact: every exponent, subnormals, zeros, infinities, NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def numbers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    least = info.smallest_normal
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 3.7, -100.25, math.inf, -math.inf, math.nan, info.max, info.min]
    edges += [least, -least, least / 2, least * info.eps, -least * info.eps, 1 + info.eps, 1 - info.eps / 2]
    powers = torch.linspace(math.log2(least), math.log2(info.max), 40, dtype=torch.float64).exp2() * 0.99
    return torch.cat([torch.tensor(edges, dtype=torch.float64), powers, -powers]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_nextafter(dtype: torch.dtype, target: str) -> None:
    x, y = numbers(dtype)[:, None], numbers(dtype)
    got, expected = compile(torch.nextafter, (x, y), target=target)(x, y), torch.nextafter(x, y)
    same_bits = got.view(torch.uint8) == expected.view(torch.uint8)
    assert (same_bits.view(*got.shape, -1).all(-1) | (got.isnan() & expected.isnan())).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_frexp(dtype: torch.dtype, target: str) -> None:
    x = numbers(dtype)
    got, expected = compile(torch.frexp, (x,), target=target)(x), torch.frexp(x)
    torch.testing.assert_close(got[0], expected.mantissa, rtol=0, atol=0, equal_nan=True)
    assert got[0][~x.isnan()].signbit().equal(expected.mantissa[~x.isnan()].signbit())
    assert got[1].equal(expected.exponent)


@pytest.mark.few(64)
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS])
def test_view_as_another_dtype(source: torch.dtype, target: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 16), (16,), (0, 16)):
        x = torch.randint(0, 256, (*shape[:-1], shape[-1] * source.itemsize), generator=generator, dtype=torch.uint8)
        x = x.view(source)
        got, expected = compile(lambda x: x.view(target), (x,), target="evaluator")(x), x.view(target)
        assert got.dtype == target and got.shape == expected.shape
        assert got.view(torch.uint8).equal(expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_hash_tensor(agrees: Agrees, dtype: torch.dtype) -> None:
    x = (torch.randn(4, 5, generator=torch.Generator().manual_seed(0)) * 20).to(dtype)
    for tensor in (x, x[0, 0]):
        agrees(torch.hash_tensor, tensor)
    agrees(lambda x: torch.hash_tensor(x, 1), x)
    agrees(lambda x: torch.hash_tensor(x, (0, -1), keepdim=True), x)
    agrees(lambda x: torch.hash_tensor(x, 1), x[:0])
