"""The error function's relatives against mpmath: eager is the coarser one."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch

from torchstone.compiler.driver import compile

POINTS = [-30.0, -26.5, -9.3, -4.0, -0.7, -1e-3, 0.0, 1e-9, 0.3, 1.5, 4.68, 9.0, 19.99, 20.0, 25.7, 100.0, 1e6, 1e30]


def _erfcx(x: float) -> float:
    with mpmath.workdps(60):
        if x > 1e5:
            return float((1 - 1 / (2 * mpmath.mpf(x) ** 2)) / (mpmath.sqrt(mpmath.pi) * x))
        return float(mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_erfcx(dtype: torch.dtype) -> None:
    x = torch.tensor(POINTS, dtype=dtype)
    got = compile(torch.special.erfcx, (x,), target="evaluator")(x)
    exact = torch.tensor([_erfcx(v) for v in x.tolist()], dtype=torch.float64).to(dtype)
    torch.testing.assert_close(got, exact, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_erfcx_at_the_ends(agrees: Callable[..., None]) -> None:
    ends = torch.tensor([math.inf, -math.inf, math.nan, -1e30, 3e38])
    agrees(torch.special.erfcx, ends)
    agrees(torch.special.erfcx, torch.tensor([-3, 0, 2, 40]))
    agrees(torch.special.log_ndtr, torch.tensor([*POINTS, *ends.tolist()]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_erfinv_has_all_digits_up_to_its_ends(dtype: torch.dtype) -> None:
    """Beside 1, where erf has no digits left, 1 - y is exact."""
    beside = [1 - 2.0**-k for k in range(1, 54)]
    y = torch.tensor(
        [*beside, *(-v for v in beside), 0.0, -0.0, 5e-324, 1e-300, -1e-9, 0.3, 0.7, 0.7000001], dtype=dtype
    )
    got = compile(torch.erfinv, (y,), target="evaluator")(y)
    with mpmath.workdps(60):
        exact = [math.copysign(math.inf, v) if abs(v) == 1 else float(mpmath.erfinv(v)) for v in y.tolist()]
    wanted = torch.tensor(exact, dtype=torch.float64).to(dtype)
    torch.testing.assert_close(got, wanted, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(torch.signbit(got), torch.signbit(y))
    assert compile(torch.erfinv, (y,), target="evaluator")(torch.full_like(y, 1.5)).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scaled_bessel_function_is_never_above_1(dtype: torch.dtype) -> None:
    x = torch.cat([torch.zeros(1, dtype=dtype), torch.logspace(-12, 1, 2000, dtype=dtype)])
    got = compile(torch.special.i0e, (x,))(x)
    assert got.max() == got[0] == 1 and got.min() > 0
    assert compile(torch.i0, (x,))(x)[0] == 1
    assert compile(torch.special.i0e, (x,))(torch.full_like(x, math.nan)).isnan().all()
