"""Referees that several judgements share: the same runs, and none that another case made."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.reference.shared import referee_of, shared_runs
from torchstone.conformance.program.program import Call, Program, Ref

SINE = Program(("x",), (Call("torch.sin", (Ref("x"),), {}, "y"),), Ref("y"))
COSINE = Program(("x",), (Call("torch.cos", (Ref("x"),), {}, "y"),), Ref("y"))


def numbers() -> torch.Tensor:
    return torch.linspace(0, 1, 8)


def test_equal_programs_on_equal_inputs_have_one_referee() -> None:
    with shared_runs():
        first = referee_of(SINE, (numbers(),))
        again = Program.from_json(SINE.to_json())
        assert referee_of(again, (numbers(),)) is first
        assert first.float64 is referee_of(SINE, (numbers(),)).float64


@pytest.mark.parametrize(
    "program, tensor, seed",
    [
        (COSINE, numbers(), None),
        (SINE, numbers() + 1, None),
        (SINE, numbers().double(), None),
        (SINE, numbers().repeat_interleave(2)[::2], None),
        (SINE, -numbers().neg()._neg_view(), None),
        (SINE, numbers().view(2, 4), None),
        (SINE, numbers(), 7),
    ],
    ids=["program", "numbers", "dtype", "strides", "storage", "shape", "seed"],
)
def test_what_differs_has_its_own(program: Program, tensor: torch.Tensor, seed: int | None) -> None:
    with shared_runs():
        assert referee_of(program, (tensor,), seed=seed) is not referee_of(SINE, (numbers(),))


def test_inputs_that_share_memory_are_other_inputs() -> None:
    add = Program(("x", "y"), (Call("torch.add", (Ref("x"), Ref("y")), {}, "z"),), Ref("z"))
    tensor = numbers()
    with shared_runs():
        assert referee_of(add, (tensor, tensor)) is not referee_of(add, (tensor, tensor.clone()))


def test_inputs_written_to_afterwards_change_no_referee() -> None:
    tensor = numbers()
    with shared_runs():
        referee = referee_of(SINE, (tensor,))
        tensor.zero_()
        assert referee is referee_of(SINE, (numbers(),))
        assert torch.equal(referee.float64.leaves[0], numbers().double().sin())


def test_without_sharing_each_judgement_has_its_own() -> None:
    assert referee_of(SINE, (numbers(),)) is not referee_of(SINE, (numbers(),))
    with shared_runs():
        kept = referee_of(SINE, (numbers(),))
    with shared_runs():
        assert referee_of(SINE, (numbers(),)) is not kept


def test_verdicts_are_those_of_referees_that_are_not_shared() -> None:
    args = (torch.linspace(-3, 3, 64).to(torch.bfloat16),)
    cube = Call("torch.pow", (Ref("x"), 3), {}, "y")
    program = Program(("x",), (cube, Call("torch.sub", (Ref("y"), Ref("x")), {}, "z")), Ref("z"))
    expected = Observed(program(*args), args)
    answers = [Observed(expected.outputs * (1 + off), args) for off in (0.0, 1e-2, 0.2, 3.0)]
    alone = [judge(program, args, expected, answer) for answer in answers]
    with shared_runs():
        assert [judge(program, args, expected, answer) for answer in answers] == alone
        assert [judge(program, args, expected, answer) for answer in reversed(answers)] == alone[::-1]
