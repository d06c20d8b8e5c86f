"""Orthogonal polynomials against eager: degrees below 0, fractional and NaN, points at and beyond 1, overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile
from torchstone.compiler.transforms.expansions.special import polynomials

Agrees = Callable[..., None]
CHEBYSHEV = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
OTHERS = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
POINTS = [0.0, -0.0, 1, -1, 0.5, -0.5, 0.999, -0.999, 1.001, -1.001, 2.5, -3, 0.3, 7, -12.5, 1e10, -1e10, math.inf]
DEGREES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 31, 0.5, 2.9, -1, -0.5, -3, math.nan, math.inf]


@pytest.mark.few(10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CHEBYSHEV + OTHERS)
def test_values(agrees: Agrees, name: str, dtype: torch.dtype) -> None:
    op = getattr(torch.special, name)
    x, n = torch.tensor(POINTS, dtype=dtype), torch.tensor(DEGREES, dtype=dtype)
    # Eager multiplies and adds in one step, which shows where the terms nearly cancel: a rounding for each of up to 31
    # steps, carried through those that follow.
    agrees(op, x[:, None], n, slack=32)
    agrees(lambda n: op(0.25, n), n, slack=4)
    agrees(lambda x: op(x, 5), x)
    agrees(op, torch.tensor([[-2], [0], [3]]), torch.tensor([0, 1, 2, 5]))


@pytest.mark.parametrize("name", CHEBYSHEV + OTHERS)
def test_of_nan(name: str) -> None:
    op = getattr(torch.special, name)
    x, n = torch.full((5,), math.nan), torch.tensor([-1.0, 0, 1, 2, 9])
    got = compile(op, (x, n), target="evaluator")(x, n)
    torch.testing.assert_close(got, torch.tensor([0, 1, math.nan, math.nan, math.nan]), equal_nan=True)


@pytest.mark.parametrize("name", CHEBYSHEV)
def test_high_degrees_are_as_exact_as_low_ones(name: str) -> None:
    op = getattr(torch.special, name)
    x, n = torch.tensor([0.3, -0.7, 0.9999, -1.0001, 1.02]), torch.tensor([100.0, 999.0, 5001.0, 4000.0, 321.0])
    x = (x + 1) / 2 if name.startswith("shifted") else x
    got, exact = compile(op, (x, n), target="evaluator")(x, n), op(x.double(), n.double())
    assert exact.isfinite().all()
    torch.testing.assert_close(got, exact.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CHEBYSHEV)
def test_polynomials_that_overflow_are_nan_of_any_degree(name: str) -> None:
    op = getattr(torch.special, name)
    x, n = torch.tensor([[9.0], [-9.0], [1.5]]), torch.tensor([1e4, 2.0**40, 2.0**53, 2.0**61, 2.0**62])
    assert bool(op(x, n).isnan().all())
    assert bool(compile(op, (x, n), target="linalg")(x, n).isnan().all())


@pytest.mark.parametrize("kind", "tuvw")
def test_beyond_1_high_degrees_lose_no_digits(kind: str) -> None:
    """Of whole numbers, whose polynomials are whole."""
    x, n = torch.tensor([2.0, 3, 8, -5]).double(), torch.tensor([401.0, 339, 233, 250]).double()
    got = compile(getattr(torch.special, f"chebyshev_polynomial_{kind}"), (x, n), target="linalg")(x, n)
    for point, degree, value in zip(x.tolist(), n.tolist(), got.tolist(), strict=True):
        before, last = 1, {"t": 1, "u": 2, "v": 2, "w": 2}[kind] * int(point) + {"v": -1, "w": 1}.get(kind, 0)
        for _ in range(1, int(degree)):
            before, last = last, 2 * int(point) * last - before
        assert abs(Fraction(value) - last) <= 4 * Fraction(math.ulp(value)), (point, degree)


@pytest.mark.parametrize(("name", "target"), covering(OTHERS, ["evaluator", "linalg"], strength=1))
def test_recurrences_go_on_to_any_degree(name: str, target: str) -> None:
    op = getattr(torch.special, name)
    x, n = torch.tensor([[0.3], [-0.7], [1.0], [1.5], [-40.0]]), torch.tensor([-2.0, 0.0, 1.0, 33.0, 100.0, 300.0])
    compiled = compile(op, (x, n), target=target)
    got = compiled(x, n)
    exact, eager = op(x.double(), n.double()).float(), op(x, n)
    finite = eager.isfinite()
    torch.testing.assert_close(got[finite], exact[finite], rtol=1e-5, atol=1e-6)
    assert torch.equal(got.isnan(), eager.isnan())
    torch.testing.assert_close(compiled(x, torch.ones(6)), op(x, torch.ones(6)))


def test_degrees_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polynomials, "_HIGHEST", 2.0**10)
    x, n = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 2.0])
    for name in ("laguerre_polynomial_l", "legendre_polynomial_p"):
        compiled = compile(getattr(torch.special, name), (x, n), target="evaluator")
        with pytest.raises(Unsupported, match="degree above 1024"):
            compiled(x, torch.tensor([1e9, 3.0]))
        # What has overflowed on the way is NaN at any degree.
        assert compiled(-2 * x, torch.tensor([3.0, 1e9])).isnan().tolist() == [False, True]
    # Eager's Hermite polynomials are NaN there.
    compiled = compile(torch.special.hermite_polynomial_h, (x, n), target="evaluator")
    assert compiled(x, torch.tensor([129.0, 1e9])).isnan().all()
