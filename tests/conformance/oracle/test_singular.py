"""Matrices that float64 finds singular, and float32 does not."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref


@pytest.mark.parametrize(
    ("matrix", "outcome"),
    [
        ([[5.0, 7.0, -9.0], [-7.0, 4.0, -7.0], [-2.0, 11.0, -16.0]], Outcome.ILL_CONDITIONED),
        ([[5.0, 7.0, -9.0], [-7.0, 4.0, -7.0], [-2.0, 11.0, 16.0]], Outcome.MISMATCH),
    ],
)
def test_what_float64_finds_singular_has_no_wrong_inverse(matrix: list[list[float]], outcome: Outcome) -> None:
    """In the first, the last row is the sum of the others. Float32 rounds, and finds an inverse."""
    program = Program(("x",), (Call("torch.linalg.inv", (Ref("x"),), {}, "y"),), Ref("y"))
    args = (torch.tensor(matrix),)
    expected = torch.linalg.inv(args[0])
    finding = judge(program, args, Observed(expected, args), Observed(-expected, args))
    assert finding.outcome is outcome
    assert ("float64 refuses it: _LinAlgError" in finding.message) is (outcome is Outcome.ILL_CONDITIONED)
