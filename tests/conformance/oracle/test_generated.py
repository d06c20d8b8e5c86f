"""Generated functions: a number in a gap is never absolved, and a right evaluation never accused.

``python -m tests.conformance.oracle.generated.sweep`` tries as many as wanted; here a few of each dtype are tried.
"""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.generated.gaps import gap_function
from tests.conformance.oracle.generated.ill_conditioned import ill_conditioned
from tests.conformance.oracle.generated.sweep import absolved, accused, finding_of
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref


@pytest.mark.parametrize("seed", [0, 5, 10, 18, 33, 38])
def test_a_number_in_a_gap_is_a_mismatch(seed: int) -> None:
    assert list(absolved(seed, 2)) == []


@pytest.mark.parametrize("seed", [0, 2, 5, 13, 25, 26])
def test_another_right_evaluation_is_none(seed: int) -> None:
    case = ill_conditioned(seed)
    assert list(accused(case.program, case.inputs, seed)) == []


def test_what_rounding_does_to_a_gap_function_is_none() -> None:
    gap = gap_function(14)
    assert list(accused(gap.program, (gap.x,), 14)) == []


@pytest.mark.parametrize("answer, outcome", [(0.0, Outcome.MISMATCH), (1.02, Outcome.ILL_CONDITIONED)])
def test_between_the_sides_of_a_jump_steepness_is_no_excuse(answer: float, outcome: Outcome) -> None:
    """sign(sin(1e8 y)) * (1 + 0.1 sin(3e8 y)) of y = exp(x): from 0.9 to 1.1, or the same below zero."""
    calls = [("exp", Ref("x")), ("mul", Ref("r0"), 1e8), ("sin", Ref("r1")), ("sign", Ref("r2"))]
    calls += [("mul", Ref("r0"), 3e8), ("sin", Ref("r4")), ("mul", Ref("r5"), 0.1), ("add", Ref("r6"), 1.0)]
    calls += [("mul", Ref("r3"), Ref("r7"))]
    steps = tuple(Call(f"torch.{name}", tuple(args), {}, f"r{k}") for k, (name, *args) in enumerate(calls))
    finding = finding_of(
        Program(("x",), steps, Ref("r8")), (torch.tensor([0.3, 0.31]),), torch.tensor([answer, answer])
    )
    assert finding.outcome is outcome, finding
