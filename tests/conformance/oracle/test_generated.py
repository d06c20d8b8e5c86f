"""Generated functions: a number in a gap is never absolved, and a right evaluation never accused.

``python -m tests.conformance.oracle.generated.sweep`` tries as many as wanted; here a few of each dtype are tried.
"""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.generated.building import CHAOTIC
from tests.conformance.oracle.generated.gaps import gap_function
from tests.conformance.oracle.generated.ill_conditioned import ill_conditioned
from tests.conformance.oracle.generated.sweep import absolved, accused, finding_of
from tests.sampling import covering, one_in, some
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "seed", some([0, 5, 10, 18, 33, 38, 700088, 730058, 840002, 860037], lambda seed: seed not in (10, 18, 860037))
)
def test_a_number_in_a_gap_is_a_mismatch(seed: int) -> None:
    assert list(absolved(seed, 2)) == []


@pytest.mark.torture
@pytest.mark.parametrize("seed", [730056, 760185, 880152, pytest.param(810153, marks=pytest.mark.torture)])
def test_many_gaps_in_few_digits(seed: int) -> None:
    """Forty floors, which 256 runs do not tell from what is dense; waves whose error reaches far in 8 bits, and a jump
    beside one that the first few runs do not meet."""
    assert list(absolved(seed)) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", one_in(2, [0, 2, 5, 13, 25, 26]))
def test_another_right_evaluation_is_none(seed: int) -> None:
    case = ill_conditioned(seed)
    assert list(accused(case.program, case.inputs, seed)) == []


def test_what_rounding_does_to_a_gap_function_is_none() -> None:
    gap = gap_function(14)
    assert list(accused(gap.program, (gap.x,), 14)) == []


def _waves(dtype: torch.dtype) -> Program:
    """sign(sin(k y)) * (1 + 0.1 sin(3 k y)) of y = exp(x): from 0.9 to 1.1, or the same below zero."""
    factor = CHAOTIC[dtype]
    calls = [("exp", Ref("x")), ("mul", Ref("r0"), factor), ("sin", Ref("r1")), ("sign", Ref("r2"))]
    calls += [("mul", Ref("r0"), 3 * factor), ("sin", Ref("r4")), ("mul", Ref("r5"), 0.1), ("add", Ref("r6"), 1.0)]
    calls += [("mul", Ref("r3"), Ref("r7"))]
    steps = tuple(Call(f"torch.{name}", tuple(args), {}, f"r{k}") for k, (name, *args) in enumerate(calls))
    return Program(("x",), steps, Ref("r8"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("answer", "dtype"),
    covering([0.0, -0.5, 5.0, 20.0], [torch.float32, torch.float16, torch.bfloat16], strength=1),
)
def test_between_the_sides_of_a_jump_steepness_is_no_excuse(answer: float, dtype: torch.dtype) -> None:
    """Nor are few bits, in which all runs lie far from one another."""
    x = torch.tensor([0.3, 0.31], dtype=dtype)
    finding = finding_of(_waves(dtype), (x,), torch.full((2,), answer, dtype=dtype))
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_beside_a_jump_what_rounding_gives_is_ill_conditioned(dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, 0.31], dtype=dtype)
    finding = finding_of(_waves(dtype), (x,), torch.full((2,), 1.02, dtype=dtype))
    assert finding.outcome is Outcome.ILL_CONDITIONED, finding
