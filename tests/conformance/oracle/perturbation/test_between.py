"""A number between two runs of the rounding model is looked for between them, and found unless there is a jump."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one, several
from torchstone.conformance.oracle.perturbation import search
from torchstone.conformance.program.program import Call, Program, Ref

EQUAL = torch.full((125,), -8.4784)


@pytest.mark.few(2)
@pytest.mark.parametrize("ulps", [0, 3, 5, 9])
def test_a_variance_of_equal_numbers_is_the_square_of_an_error_of_the_mean(ulps: int) -> None:
    error = (ulps * torch.finfo(torch.float32).eps * 8) ** 2
    found = compare(one("var", X), lambda x: torch.tensor(error), EQUAL)
    assert found.outcome in ("pass", "ill-conditioned"), found


@pytest.mark.few(1)
@pytest.mark.parametrize("op", ["var", "cov"])
@pytest.mark.parametrize("ulps", [0, 1, 2, 6, 9])
def test_of_equal_float64_numbers_too_whose_errors_are_a_few_units(op: str, ulps: int) -> None:
    error = (ulps * torch.finfo(torch.float64).eps * 8) ** 2 * 125 / 124
    found = compare(one(op, X), lambda x: torch.tensor(error, dtype=torch.float64), EQUAL.double())
    assert found.outcome in ("pass", "ill-conditioned"), found


@pytest.mark.torture
@pytest.mark.parametrize("given", [-1e-30, 1e-24])
def test_no_rounding_gives_a_negative_covariance_or_a_large_one(given: float) -> None:
    number = torch.tensor(given, dtype=torch.float64)
    assert compare(one("cov", X), lambda x: number, EQUAL.double()).outcome == "mismatch"


@pytest.mark.few(1)
@pytest.mark.parametrize("given", [-1e-11, 1e-6])
def test_no_rounding_gives_a_negative_variance_or_a_large_one(given: float) -> None:
    assert compare(one("var", X), lambda x: torch.tensor(given), EQUAL).outcome == "mismatch"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("dtype", "factor", "met"), [(torch.float32, 1e8, "ill-conditioned"), (torch.float64, 1e17, "mismatch")]
)
def test_between_the_two_sides_of_a_jump_there_is_nothing(dtype: torch.dtype, factor: float, met: str) -> None:
    """The sign of the sine of a large angle is 1 or -1; and 1 + 0.1 * sin beside it is anything from 0.9 to 1.1, but in
    float64, where nothing but the product rounds that the angle depends on, and that to one number alone."""
    jump = several(("mul", X, factor), ("sin", Ref("r0")), ("sign", Ref("r1")))
    wave = several(("mul", X, factor), ("sin", Ref("r0")), ("mul", Ref("r1"), 0.1), ("add", Ref("r2"), 1.0))
    x = torch.tensor([1.3498588], dtype=dtype)
    for program, number, outcome in (
        (jump, 0.5, "mismatch"), (jump, 0.999, "mismatch"), (wave, 1.02, met), (wave, 1.2, "mismatch"),
    ):  # fmt: skip
        given = torch.tensor([number], dtype=dtype)
        assert compare(program, lambda x, given=given: given, x).outcome == outcome, (program, given)


def test_a_search_holds_no_more_numbers_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are one sum, of terms that cancel, times a number: one run that gives one of them gives the others."""
    held, add = [0], search._Samples._add

    def counted(samples: search._Samples, *run: Any) -> Tensor | None:
        row = add(samples, *run)
        held.append(sum(row.numel() for row in samples.rows))
        return row

    monkeypatch.setattr(search._Samples, "_add", counted)
    monkeypatch.setattr(search, "MOST_NUMBERS", 200 * 100)
    calls = (
        Call("torch.exp", (Ref("x1"),), {}, "terms"),
        Call("torch.dot", (Ref("terms"), Ref("x2")), {}, "total"),
        Call("torch.mul", (Ref("x0"), Ref("total")), {}, "products"),
    )
    program = Program(("x0", "x1", "x2"), calls, Ref("products"))
    factors = torch.linspace(1.0, 2.0, 200, dtype=torch.float64)
    terms = torch.tensor([30.1, 30.1, 0.0], dtype=torch.float64), torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    for total, outcome in ((1.0004, "ill-conditioned"), (1.4, "mismatch")):
        assert compare(program, lambda x, *_, by=total: x * by, factors, *terms).outcome == outcome
    assert 200 * 50 < max(held) <= 200 * 100
