"""The incomplete gamma functions against SciPy's in float64: tails of both sides, a near x, small and large numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import scipy.special
import torch

from torchstone.compiler.driver import compile

A = torch.tensor([1e-10, 1e-3, 0.3, 1.0, 1.1, 2.5, 9.9, 10.0, 30.0, 100.0, 5e3, 1e5])
X = torch.tensor([1e-20, 1e-4, 0.5, 1.0, 1.1, 1.2, 3.0, 9.0, 10.5, 35.0, 90.0, 110.0, 4.9e3, 5.2e3, 1.01e5, 9.9e4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_values(dtype: torch.dtype) -> None:
    a, x = A.to(dtype)[:, None], X.to(dtype)
    a, x = a[(a[:, 0] > 0) & a[:, 0].isfinite()], x[(x > 0) & x.isfinite()]  # what float16 holds
    for op, exact in (
        (torch.special.gammainc, scipy.special.gammainc),
        (torch.special.gammaincc, scipy.special.gammaincc),
    ):
        got = compile(op, (a, x), target="evaluator")(a, x)
        expected = torch.from_numpy(exact(a.double().numpy(), x.double().numpy())).to(dtype)
        tolerance = max(2 * torch.finfo(dtype).eps, 1e-11)
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=torch.finfo(dtype).tiny)


def test_float64_is_near_the_exact_value() -> None:
    """Within 16 ULP where eager is 40 off. Exact: P(n, x) of a whole n is 1 - e**-x sum(x**k / k!), in fractions."""
    points = [(n, x) for n in range(1, 16) for x in (0.5, 1.5, n - 0.5, n + 0.75, 2.0 * n)]
    points = [
        (n, x) for n, x in points if n < 10 or x > n / 2
    ]  # far below, the logarithm of the density has digits to lose
    a, x = torch.tensor(points, dtype=torch.float64).unbind(1)
    for op, upper in ((torch.igamma, False), (torch.igammac, True)):
        got = compile(op, (a, x), target="evaluator")(a, x)
        exact = [_whole_shape(n, Fraction(x), upper=upper) for n, x in points]
        torch.testing.assert_close(got, torch.tensor(exact, dtype=torch.float64), rtol=16 * 2**-53, atol=0)


def _whole_shape(n: int, x: Fraction, *, upper: bool) -> float:
    terms = [x**k / math.factorial(k) for k in range(120)]
    total = sum(terms)
    return float((sum(terms[:n]) if upper else sum(terms[n:])) / total)


def test_ends(agrees: Callable[..., None]) -> None:
    ends = torch.tensor([0.0, -0.0, 1e-20, 2.0, 50.0, math.inf, -math.inf, math.nan, -1.0])
    for op in (torch.igamma, torch.igammac, torch.special.gammainc, torch.special.gammaincc):
        agrees(op, ends[:, None], ends)


def test_an_argument_as_large_as_the_shape() -> None:
    a = torch.tensor([1e12, 1e20, 3e38])
    got = compile(torch.special.gammaincc, (a, a), target="evaluator")(a, a)
    torch.testing.assert_close(got, torch.full((3,), 0.5), rtol=1e-6, atol=0)


def test_the_largest_numbers() -> None:
    """Twice the largest number overflows; eager gives NaN for unequal ones."""
    a = torch.tensor([1.7976931348623157e308, 1e305, 1e300, 1.0, 1.7976931348623157e308], dtype=torch.float64)
    x = torch.tensor([1.7976931348623157e308, 1e305, 1.0, 1e300, 1e305], dtype=torch.float64)
    for op, wanted in ((torch.igamma, [0.5, 0.5, 0.0, 1.0, 0.0]), (torch.igammac, [0.5, 0.5, 1.0, 0.0, 1.0])):
        got = compile(op, (a, x), target="evaluator")(a, x)
        torch.testing.assert_close(got, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=0)
