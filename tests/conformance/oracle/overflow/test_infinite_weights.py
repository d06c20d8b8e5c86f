"""Where eager's line x * a + b is infinity minus infinity, the documented formula of a norm has an answer."""

from __future__ import annotations

import math

import pytest
import torch

from tests.conformance.oracle.test_compare import compare
from torchstone.conformance.program.program import Call, Program, Ref

NORM = Call("torch.nn.functional.instance_norm", (Ref("x0"),), {"weight": Ref("x1"), "bias": Ref("x2")}, "y")
ROW = torch.tensor([[[-2.1171875, 5.4765625, 65504.0, 65504.0, 5.4765625, -1.447265625, -3.265625]]]).half()
SIDES = torch.sgn(ROW.double() - ROW.double().mean())


@pytest.mark.parametrize(
    ("size", "outcome"), [(math.inf, "ill-conditioned"), (-math.inf, "mismatch"), (5.0, "mismatch")]
)
def test_infinity_on_the_side_of_the_mean_and_nothing_else(size: float, outcome: str) -> None:
    program = Program(("x0", "x1", "x2"), (NORM,), Ref("y"))
    weight, bias = torch.full((1,), math.inf).half(), torch.ones(1).half()
    assert torch.isnan(torch.nn.functional.instance_norm(ROW, weight=weight, bias=bias)).any()
    assert compare(program, lambda x, w, b: (SIDES * size).half(), ROW, weight, bias).outcome == outcome
