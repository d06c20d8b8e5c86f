"""Divided by what cancels: another order of the sum gives any number beyond those of eager, and no other."""

from __future__ import annotations

import math

import torch

from tests.conformance.oracle.test_compare import X, compare
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref

LARGE = 2.0**60
CANCELS = torch.tensor([LARGE, -LARGE, 1.0, -1.0])
SUM = Call("torch.sum", (X,), {}, "s")


def of_the_sum(*calls: Call) -> Program:
    return Program(("x0",), (SUM, *calls), Ref(calls[-1].result))


RECIPROCAL = of_the_sum(Call("torch.reciprocal", (Ref("s"),), {}, "r"))


def outcome(program: Program, number: float) -> Outcome:
    return compare(program, lambda x: torch.tensor(number), CANCELS).outcome


def test_a_number_next_to_a_pole_is_ill_conditioned() -> None:
    assert RECIPROCAL(CANCELS) == math.inf
    for sum_of_some_order in (1.0, -1.0, 2.0**-20):
        assert outcome(RECIPROCAL, 1 / sum_of_some_order) is Outcome.ILL_CONDITIONED
    assert outcome(RECIPROCAL, -math.inf) is Outcome.ILL_CONDITIONED
    for wrong in (0.0, 1e-20, math.nan):
        assert outcome(RECIPROCAL, wrong) is Outcome.MISMATCH, wrong


def test_a_jump_to_infinity_leaves_out_what_is_between() -> None:
    """1 / sign(s) is 1, -1 or infinity."""
    jump = of_the_sum(Call("torch.sign", (Ref("s"),), {}, "g"), Call("torch.reciprocal", (Ref("g"),), {}, "r"))
    assert jump(CANCELS) == math.inf
    for wrong in (3.0, -1e10, 0.5):
        assert outcome(jump, wrong) is Outcome.MISMATCH, wrong


def test_infinity_is_what_lies_beyond_the_range_at_a_neighbour() -> None:
    """The product may be 177.375 or 177.5 in float16, whose tangents are 7.96 and -66347."""
    product = Call("torch.mul", (X, 120.0), {}, "p")
    program = Program(("x0",), (product, Call("torch.tan", (Ref("p"),), {}, "r")), Ref("r"))
    x = torch.tensor([1.478515625], dtype=torch.float16)
    assert program(x).item() == 7.9609375 and torch.tan(torch.tensor(177.5, dtype=torch.float16)) == -math.inf
    for number, right in ((-math.inf, Outcome.ILL_CONDITIONED), (math.inf, Outcome.MISMATCH), (-3e4, Outcome.MISMATCH)):
        given = torch.tensor([number], dtype=torch.float16)
        assert compare(program, lambda x, given=given: given, x).outcome is right, number
