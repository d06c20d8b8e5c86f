"""Eager's error on one input is luck: a backend may be as far off as eager is on the inputs next to it, no further."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one
from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome

FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "special.bessel_y0": (torch.special.bessel_y0, 3.9, 4.0),  # a zero lies between
    "special.bessel_j1": (torch.special.bessel_j1, 3.8, 3.9),
    "special.airy_ai": (torch.special.airy_ai, 2.1, 2.3),  # before all zeros
}


def lucky(function: Callable[[Tensor], Tensor], low: float, high: float) -> tuple[Tensor, Tensor, float]:
    """The input of a range at which eager is nearest to float64, the exact number there, and eager's largest error in
    the range."""
    x = torch.linspace(low, high, 4096)
    exact = function(x.double())
    errors = (function(x).double() - exact).abs()
    at = int(errors.argmin())
    return x[at : at + 1], exact[at : at + 1], float(errors.max())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("side", [1, -1])
def test_eagers_errors_nearby_are_allowed(name: str, side: int) -> None:
    x, exact, error = lucky(*FUNCTIONS[name])
    finding = compare(one(name), lambda _: (exact + side * error).float(), x)
    assert finding.outcome is Outcome.PASS, finding


@pytest.mark.few(2)
@pytest.mark.parametrize(("side", "name"), covering([1, -1], [*FUNCTIONS], strength=1))
def test_errors_that_eager_never_makes_are_not(name: str, side: int) -> None:
    x, exact, error = lucky(*FUNCTIONS[name])
    finding = compare(one(name), lambda _: (exact + side * 30 * error).float(), x)
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.parametrize("name", ["exp", "sin", "erf", "lgamma", "special.i0"])
def test_where_eager_is_good_nearby_nothing_is_allowed(name: str) -> None:
    x = torch.linspace(0.3, 0.7, 16)
    finding = compare(one(name), lambda x: getattr(torch, name.removeprefix("special."))(x) * (1 + 3e-6), x)
    assert finding.outcome is Outcome.MISMATCH, finding


def test_a_jump_nearby_is_none_of_eagers_errors() -> None:
    x = torch.tensor([3.0000002, 20.999998])
    finding = compare(one("floor_divide", X, 3.0), lambda x: torch.floor_divide(x, 3.0) + 3, x)
    assert finding.outcome is Outcome.MISMATCH, finding
