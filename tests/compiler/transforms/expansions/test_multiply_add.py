"""Sums with a factor, and interpolation: a product that overflows by itself may have a finite sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile

FLOATS = (torch.float32, torch.float64)

# The result at (MAX, -MAX), or at (-MAX, MAX) with the other sign, in units of the largest number.
PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], float]] = {
    "add": (lambda x, y: torch.add(x, y, alpha=2), -1.0),
    "sub": (lambda x, y: torch.sub(x, -y, alpha=2), -1.0),
    "rsub": (lambda x, y: torch.rsub(-y, x, alpha=2), -1.0),
    "lerp": (lambda x, y: torch.lerp(x, x / 2, 3), -0.5),
    "lerp to the near end": (lambda x, y: torch.lerp(x / 2, x, -3), -1.0),
    "lerp by a tensor": (lambda x, y: torch.lerp(x, x / 2, torch.full_like(x, 3)), -0.5),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_product_alone_overflows(name: str, dtype: torch.dtype) -> None:
    program, units = PROGRAMS[name]
    largest = torch.finfo(dtype).max
    x = torch.tensor([largest, -largest], dtype=dtype)
    for target in ("linalg", "evaluator"):
        out = compile(program, (x, -x), target)(x, -x)
        assert torch.equal(out, x * units), target


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.complex64, torch.bfloat16], ids=str)
def test_other_dtypes_agree_with_eager(agrees: Callable[..., Any], dtype: torch.dtype) -> None:
    x, y = (torch.arange(1, 7).to(dtype) for _ in range(2))
    agrees(lambda x, y: (torch.add(x, y, alpha=3), torch.sub(x, y, alpha=3), torch.rsub(x, y, alpha=3)), x, y)


def test_a_weight_of_one_half_or_more_goes_from_the_end() -> None:
    """lerp(a, b, 1) is b, whatever a is; lerp(a, b, 0) is a."""
    a, b = torch.tensor([1e30, -3.0, 0.1]), torch.tensor([1.0, 7e-9, 0.3])
    for dtype in (torch.float32, torch.float64, torch.complex64):
        x, y = a.to(dtype), b.to(dtype)
        exe = compile(lambda x, y: (torch.lerp(x, y, 1.0), torch.lerp(x, y, 0.0)), (x, y))
        end, start = exe(x, y)
        assert torch.equal(end, y) and torch.equal(start, x)


@pytest.mark.parametrize("alpha", [0, 0.0, -0.0, 1, -1], ids=repr)
def test_signs_of_zeros_are_those_of_the_factor_taken_first(alpha: float) -> None:
    x, y = torch.tensor([1.0, -1.0, 0.0, -0.0]), torch.tensor([-0.0, 0.0, -0.0, 0.0])
    program = lambda x, y: (torch.sub(y, x, alpha=alpha), torch.rsub(x, y, alpha=alpha))  # noqa: E731
    for got, expected in zip(compile(program, (x, y), "linalg")(x, y), program(x, y), strict=True):
        assert torch.equal(torch.signbit(got), torch.signbit(expected))


SIZES: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: torch.add(x, y, alpha=y.shape[0]),
    "sub": lambda x, y: torch.sub(x, y, alpha=y.shape[0]),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=y.shape[0]),
    "addmm": lambda x, y: torch.addmm(y, x @ x.t(), y, beta=x.shape[0], alpha=x.shape[1]),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_factor_that_is_a_size(name: str) -> None:
    program, rows = SIZES[name], {0: torch.export.Dim.DYNAMIC}
    x, y = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4) / 4
    executable = compile(program, (x, y), "linalg", dynamic_shapes=(rows, rows))
    for given in ((x, y), (x[:2], y[:2]), (torch.cat([x, x]), torch.cat([y, y]))):
        torch.testing.assert_close(executable(*given), program(*given))
