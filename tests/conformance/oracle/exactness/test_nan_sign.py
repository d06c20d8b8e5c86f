"""The sign of NaN: caught where every step of a program keeps it, either one where an operation of numbers made it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one, several
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.program import Program, Ref

NANS = torch.tensor([1.0, math.nan, -math.nan, -2.0])


def other(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), -x, x)


@pytest.mark.parametrize("program", [one("clone"), one("flip", X, [0]), one("copysign", X, -1.0)], ids=str)
def test_another_sign_is_caught(program: Program) -> None:
    assert compare(program, program, NANS).ok
    finding = compare(program, lambda x: other(program(x)), NANS)
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE), finding
    assert "the sign of NaN" in finding.message or "the sign of NaN" in str(finding.evidence)


@pytest.mark.parametrize("program", [one("signbit"), several(("flip", X, [0]), ("signbit", Ref("r0")))], ids=str)
def test_the_sign_of_a_given_nan_is_asked_for(program: Program) -> None:
    finding = compare(program, lambda x: program(other(x)), NANS)
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE), finding


def test_either_sign_of_a_made_nan_is_right_and_nothing_else() -> None:
    program, x = several(("log", X), ("signbit", Ref("r0"))), torch.tensor([-1.0, 0.5, 2.0])
    for sign in (True, False):
        assert compare(program, lambda x, s=sign: torch.where(x < 0, s, x < 1), x).ok
    assert not compare(program, lambda x: x < 2.5, x).ok


def test_the_sign_of_the_larger_is_open() -> None:
    assert compare(one("maximum", X, Y), lambda x, y: other(torch.maximum(x, y)), NANS, torch.ones(4)).ok


NEGATED = [
    one("neg"),
    one("abs"),
    several(("neg", X), ("flip", Ref("r0"), [0])),
    several(("flip", X, [0]), ("abs", Ref("r0"))),
]


@pytest.mark.parametrize("program", NEGATED, ids=str)
def test_the_sign_of_a_negated_nan_is_open_and_its_numbers_are_not(program: Program) -> None:
    """PTX leaves open which NaN ``neg.f32`` and ``abs.f32`` give, and PyTorch documents both as arithmetic."""
    assert compare(program, lambda x: other(program(x)), NANS).ok
    assert compare(program, lambda x: program(x).nan_to_num(7.0), NANS).outcome is Outcome.MISMATCH
    assert compare(program, lambda x: torch.where(x.isnan(), program(x), -program(x)), NANS).outcome is Outcome.MISMATCH


def test_what_reads_the_sign_of_a_negated_nan_is_open_for_nan_alone() -> None:
    program = several(("neg", X), ("signbit", Ref("r0")))
    for sign in (True, False):
        assert compare(program, lambda x, s=sign: torch.where(x.isnan(), s, program(x)), NANS).ok
    assert compare(program, lambda x: ~program(x), NANS).outcome is Outcome.MISMATCH


def test_a_lazy_negation_leaves_the_sign_open_too() -> None:
    negated = torch._neg_view(NANS)
    assert negated.is_neg()
    program = one("flip", X, [0])
    assert compare(program, lambda x: other(program(x)), negated).ok
    assert compare(program, lambda x: -program(x), negated).outcome is Outcome.MISMATCH
    assert compare(program, lambda x: other(program(x)), NANS).outcome is Outcome.MISMATCH
