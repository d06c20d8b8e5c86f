"""The gamma function's relatives against eager, but where its own terms cancel: at -1/2, -3/2, …"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
POINTS = [0.1, 0.5, 1.0, 1.7, 3.3, 9.0, 9.5, 25.0, 1e4, -0.3, -0.45, -1.7, -6.25, -30.75]
EDGES = [0.0, -0.0, -1.0, -7.0, math.inf, math.nan, 1e-5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_zeta(agrees: Agrees, dtype: torch.dtype) -> None:
    q = torch.tensor([*POINTS, *EDGES]).to(dtype) if dtype.is_floating_point else torch.tensor([-3, 0, 1, 2, 10])
    x = torch.tensor([1.0, 1.001, 1.5, 2.0, 3.0, 4.0, 7.5, 20.0, 21.0, 0.5, -2.0, math.nan])
    agrees(torch.special.zeta, x[:, None], q)
    agrees(lambda q: torch.special.zeta(3, q), q)
    agrees(lambda q: torch.special.zeta(q, 2.5), q)


@pytest.mark.parametrize("target", ["evaluator", "linalg", "stablehlo"])
def test_zeta_half_way_between_integers_below_0(target: str) -> None:
    """All terms of an odd x but those above 1 - q cancel. Eager adds up in an order that loses these."""
    x = torch.tensor([3.0, 5.0, 35.0, 71.0], dtype=torch.float64)[:, None]
    q = torch.tensor([-0.5, -1.5, -8.5], dtype=torch.float64)
    exe = compile(torch.special.zeta, (x, q), target)
    torch.testing.assert_close(exe(x, q), torch.special.zeta(x, 1 - q), rtol=1e-13, atol=0.0)


def test_zeta_of_terms_that_are_all_zero(agrees: Agrees) -> None:
    x = torch.tensor([2e13, 2.5e13, 2.6e13, 1e20, 1e300, math.inf], dtype=torch.float64)
    q = torch.tensor([0.5, 1.0, 1.5, 30.0, 1e10, 1e300, math.inf, -2.5], dtype=torch.float64)
    agrees(torch.special.zeta, x[:, None], q)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7])
def test_polygamma(agrees: Agrees, dtype: torch.dtype, n: int) -> None:
    points = torch.tensor([*POINTS, *EDGES], dtype=dtype)
    # Below 0 eager takes the trigamma function's sine in the dtype itself, near the zeros of which nothing is left.
    agrees(lambda x: torch.polygamma(n, x), points[points > 0] if n == 1 else points, slack=2)


def test_derivatives_of_integers_are_floats(agrees: Agrees) -> None:
    for n in (1, 2, 5):
        agrees(lambda x, n=n: torch.polygamma(n, x), torch.tensor([1, 2, 30]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_factor_that_only_float64_holds(dtype: torch.dtype) -> None:
    """70! is infinite in float32, where zeta(71, 9.5) is 0: eager, whose terms do not cancel, has minus infinity."""
    x = torch.tensor([-8.5, 9.5], dtype=dtype)
    right = torch.polygamma(70, x.double().abs() + torch.tensor([1.0, 0.0]).double()).to(dtype)
    torch.testing.assert_close(compile(lambda x: torch.polygamma(70, x), (x,), "linalg")(x), right)
    assert right.isfinite().all()
