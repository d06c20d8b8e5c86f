"""A number between two runs of the rounding model is looked for between them, and found unless there is a jump."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import X, compare, one, several
from torchstone.conformance.program.program import Ref

EQUAL = torch.full((125,), -8.4784)


@pytest.mark.parametrize("ulps", [0, 3, 5, 9])
def test_a_variance_of_equal_numbers_is_the_square_of_an_error_of_the_mean(ulps: int) -> None:
    error = (ulps * torch.finfo(torch.float32).eps * 8) ** 2
    found = compare(one("var", X), lambda x: torch.tensor(error), EQUAL)
    assert found.outcome in ("pass", "ill-conditioned"), found


@pytest.mark.parametrize("ulps", [0, 2, 6, 9])
def test_of_equal_float64_numbers_too_whose_errors_are_a_few_units(ulps: int) -> None:
    error = (ulps * torch.finfo(torch.float64).eps * 8) ** 2 * 125 / 124
    found = compare(one("cov", X), lambda x: torch.tensor(error, dtype=torch.float64), EQUAL.double())
    assert found.outcome in ("pass", "ill-conditioned"), found


@pytest.mark.parametrize("given", [-1e-30, 1e-24])
def test_no_rounding_gives_a_negative_covariance_or_a_large_one(given: float) -> None:
    number = torch.tensor(given, dtype=torch.float64)
    assert compare(one("cov", X), lambda x: number, EQUAL.double()).outcome == "mismatch"


@pytest.mark.parametrize("given", [-1e-11, 1e-6])
def test_no_rounding_gives_a_negative_variance_or_a_large_one(given: float) -> None:
    assert compare(one("var", X), lambda x: torch.tensor(given), EQUAL).outcome == "mismatch"


def test_between_the_two_sides_of_a_jump_there_is_nothing() -> None:
    """The sign of the sine of a large angle is 1 or -1; and 1 + 0.1 * sin beside it is anything from 0.9 to 1.1."""
    jump = several(("mul", X, 1e8), ("sin", Ref("r0")), ("sign", Ref("r1")))
    wave = several(("mul", X, 1e8), ("sin", Ref("r0")), ("mul", Ref("r1"), 0.1), ("add", Ref("r2"), 1.0))
    x = torch.tensor([1.3498588])
    for program, given, outcome in ((jump, 0.5, "mismatch"), (wave, 1.02, "ill-conditioned"), (wave, 1.2, "mismatch")):
        assert compare(program, lambda x, given=given: torch.tensor([given]), x).outcome == outcome, (program, given)
