"""A wrong program of a bundle is set aside, and what is said of the others is said of what was compiled for all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.set_aside import ASIDE
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.bundle import bundle
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program


class WrongFor:
    """Eager, one off for the programs of a bundle whose number is given; ``calls`` to be right in before that."""

    name = "wrong-for"

    def __init__(self, *numbers: int, calls: int = 0) -> None:
        self.numbers = numbers
        self.calls = calls
        self.compiled = 0

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Any, args: Any) -> Any:
        self.compiled += 1

        def run(*args: torch.Tensor) -> Any:
            self.calls -= 1
            found = fn(*args)
            wrong = self.numbers if self.calls < 0 else ()
            return [each + 1 if number in wrong else each for number, each in enumerate(found)]

        return run


def _cases(*targets: str) -> list[Case]:
    found = []
    for at, target in enumerate(targets):
        program = Program(("x0",), (Call(target, (Ref("x0"),), {}, "v0"),), Ref("v0"))
        inputs = {"x0": torch.arange(3.0) + at}
        found.append(Case(program, inputs, "fuzz", target, "float32", "seed-0", 4 * at + 2))
    return found


@pytest.mark.parametrize("calls", [0, 2])
def test_what_is_wrong_is_set_aside_and_the_others_pass_without_being_compiled_again(calls: int) -> None:
    backend = WrongFor(1, 3, calls=calls)
    verdict = run_case(bundle(_cases("torch.neg", "torch.exp", "torch.sin", "torch.abs")), backend)
    assert verdict.outcome is Outcome.PASS and verdict.evidence[ASIDE] == [1, 3]
    assert backend.compiled == 1


def test_what_all_are_right_of_has_nothing_set_aside() -> None:
    assert ASIDE not in run_case(bundle(_cases("torch.neg", "torch.exp")), WrongFor()).evidence


def test_where_all_are_wrong_the_last_is_told_of() -> None:
    verdict = run_case(bundle(_cases("torch.neg", "torch.exp", "torch.sin")), WrongFor(0, 1, 2))
    assert (verdict.outcome, verdict.kind, verdict.evidence[ASIDE]) == (Outcome.MISMATCH, Kind.VALUE, [0, 1])


def test_of_one_that_writes_to_its_input_the_input_is_seen() -> None:
    """A program that is wrong in what it leaves in its input, among others that are right."""

    class Forgetful(WrongFor):
        def compile(self, fn: Any, args: Any) -> Any:
            run = super().compile(fn, args)
            return lambda *args: run(args[0], args[1].clone(), args[2])

    verdict = run_case(bundle(_cases("torch.neg", "torch.Tensor.exp_", "torch.Tensor.neg_")), Forgetful())
    assert verdict.outcome is Outcome.PASS and verdict.evidence[ASIDE] == [1]


def test_what_shares_memory_is_set_aside() -> None:
    """Of three programs two give their input, where eager gives a new tensor."""

    class Lazy(WrongFor):
        def compile(self, fn: Any, args: Any) -> Any:
            run = super().compile(fn, args)
            return lambda first, second, third: [first, run(first, second, third)[1], third]

    backend = Lazy()
    verdict = run_case(bundle(_cases("torch.clone", "torch.exp", "torch.clone")), backend)
    assert verdict.outcome is Outcome.PASS and verdict.evidence[ASIDE] == [0, 2]
    assert backend.compiled == 1
