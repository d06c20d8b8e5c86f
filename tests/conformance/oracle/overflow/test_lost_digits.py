"""Products of many factors: in some order a partial product is subnormal, with few digits; all others have theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one
from torchstone.conformance.execution.verdict import Outcome

FACTORS = torch.tensor([0.46, -0.40, 5.9e-39, 0.45, -0.08, 0.46, -0.4, -0.16, 0.45, 3.4e38, 0.46, -0.4, -0.16, 1e8])
"""Their product is of ordinary size. Without the large ones it is a few of the smallest numbers of float32."""


def from_the_end(x: Tensor) -> Tensor:
    """The running product, each from its last factor to its first."""
    return torch.stack([x[: k + 1].flip(0).prod() for k in range(len(x))])


def off_by(relative: float, at: int) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = x.double().cumprod(0)
        out[at] *= 1.0 + relative
        return out.float()

    return answer


def test_another_order_has_other_digits() -> None:
    eager = FACTORS.cumprod(0)
    assert float((eager[-1] / from_the_end(FACTORS)[-1] - 1).abs()) > 1e-4
    for answer in (from_the_end, off_by(0.0, 0)):
        finding = compare(one("cumprod", X, 0), answer, FACTORS)
        assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), finding


@pytest.mark.few(2)
@pytest.mark.parametrize("relative, at", [(-2.0, -1), (5.0, -1), (1e-4, 0), (1e-4, 1)])
def test_another_number_is_wrong(relative: float, at: int) -> None:
    finding = compare(one("cumprod", X, 0), off_by(relative, at), FACTORS)
    assert finding.outcome is Outcome.MISMATCH, finding


SMALL_FIRST = torch.tensor([3.4028e38, 5.8775e-39, -6.7775e-03, 9.2752e-01, 6.9178e-03])


def in_pairs(x: Tensor) -> Tensor:
    """The running product, each in two halves."""
    return torch.stack([x[: (k + 1) // 2].prod() * x[(k + 1) // 2 : k + 1].prod() for k in range(len(x))])


@pytest.mark.parametrize("factor", [1.0, -1j, complex(0.6, 0.8)])
def test_complex_products_have_other_digits_too(factor: complex) -> None:
    x = (SMALL_FIRST * torch.tensor([factor], dtype=torch.complex128)).to(torch.complex64)
    finding = compare(one("cumprod", X, 0), in_pairs, x)
    assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), finding


@pytest.mark.few(1)
@pytest.mark.parametrize("relative, at", [(5.0, -1), (1j, -1), (1e-4, 0)])
def test_another_complex_number_is_wrong(relative: complex, at: int) -> None:
    def answer(x: Tensor) -> Tensor:
        out = x.to(torch.complex128).cumprod(0)
        out[at] *= 1.0 + relative
        return out.to(torch.complex64)

    finding = compare(one("cumprod", X, 0), answer, SMALL_FIRST.to(torch.complex64))
    assert finding.outcome is Outcome.MISMATCH, finding


def test_products_in_range_keep_their_digits() -> None:
    finding = compare(
        one("cumprod", X, 0), off_by(1e-4, -1), FACTORS.clamp(-2.0, 2.0).where(FACTORS.abs() > 1e-30, 0.5)
    )
    assert finding.outcome is Outcome.MISMATCH, finding


def test_partial_products_that_are_0_lose_all_or_nothing() -> None:
    x = torch.tensor([2.0**100, -(2.0**100), 1.1 * 2.0**-100, 2.0**-100])
    finding = compare(one("prod", X), lambda x: torch.tensor(-1.11), x)
    assert finding.outcome is Outcome.MISMATCH, finding


def test_whole_numbers_that_are_multiplied_as_floats_overflow_as_those_do() -> None:
    """The first is 0, and the others exceed float32's range: infinity times 0 is NaN, or 0 times all of them is 0."""
    x = torch.tensor([0, *[2**62] * 5])
    finding = compare(one("cumprod", X, 0, dtype=torch.float32), lambda x: in_pairs(x.float()), x)
    assert finding.outcome is Outcome.ILL_CONDITIONED, finding
    finding = compare(one("cumprod", X, 0, dtype=torch.float32), lambda x: torch.ones(6), x)
    assert finding.outcome is Outcome.MISMATCH, finding
