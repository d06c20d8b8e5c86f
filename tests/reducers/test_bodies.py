"""A branch or loop is reduced to the op in it that is wrong, or to the least branch that shows the bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cases import reduced

from tests import mutants
from torchstone.conformance.program import control_flow
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program


class AlwaysThen:
    """Eager, but for branches: it takes the first, whatever the condition."""

    def compile(self, fn: Program, args: Any) -> Callable[..., Any]:
        def perform(index: int, function: Any, given: Any, named: Any) -> Any:
            if fn.calls[index].target == control_flow.COND:
                return given[1](*given[3])
            return function(*given, **named)

        return lambda *tensors: fn.run(tensors, perform)


A, B = Ref("a"), Ref("b")
SUB = Call("torch.sub", (A, B), {}, "c")
THEN = Program(("a", "b"), (SUB, Call("torch.exp", (Ref("c"),), {}, "d")), (Ref("d"), Ref("c")))
ELSE = Program(
    ("a", "b"), (Call("torch.mul", (A, B), {}, "c"), Call("torch.neg", (Ref("c"),), {}, "d")), (Ref("d"), Ref("c"))
)


def _branching(pred: bool) -> Case:
    calls = (
        Call("torch.abs", (Ref("x"),), {}, "v0"),
        Call("torch.cond", (Ref("p"), THEN, ELSE, (Ref("v0"), Ref("y"))), {}, "v1"),
        Call("torch.sum", (Ref("v1", (0,)),), {}, "v2"),
    )
    inputs = {"p": torch.tensor(pred), "x": torch.randn(3), "y": torch.rand(3) + 1}
    return Case(Program(tuple(inputs), calls, (Ref("v2"), Ref("v1", (1,)))), inputs, "test", "test", "float32")


def test_a_bug_inside_of_a_branch_is_reduced_to_its_op() -> None:
    found = reduced(_branching(True), mutants.swapped_sub)
    assert str(found.value.program) == "v0 = torch.sub(x0, x1)\nreturn v0"


def test_a_bug_of_branching_keeps_the_branch_and_little_in_it() -> None:
    found = reduced(_branching(False), AlwaysThen())
    (call,) = found.value.program.calls
    assert call.target == "torch.cond" and all(len(body.calls) <= 1 for body in call.bodies())
    assert len(call.bodies()[0].outputs) == 1 and found.complete


def test_a_bug_inside_of_a_loop_is_reduced_to_its_op() -> None:
    below = Program(("a", "b"), (Call("torch.lt", (A, 2), {}, "c"),), Ref("c"))
    step = Program(
        ("a", "b"), (Call("torch.add", (A, 1), {}, "c"), Call("torch.sub", (B, A), {}, "d")), (Ref("c"), Ref("d"))
    )
    call = Call("torch.while_loop", (below, step, (Ref("i"), Ref("x"))), {}, "v0")
    inputs = {"i": torch.tensor(0), "x": torch.randn(3)}
    case = Case(Program(("i", "x"), (call,), Ref("v0", (1,))), inputs, "test", "test", "float32")
    found = reduced(case, mutants.swapped_sub)
    assert [call.target for call in found.value.program.calls] == ["torch.sub"]


class RefusesBranches:
    """A compiler that takes no condition, whatever is in it."""

    def compile(self, fn: Program, args: Any) -> Callable[..., Any]:
        if any(call.target == control_flow.COND for call in fn.calls):
            raise RuntimeError("no conditions")
        return fn


def test_a_branch_that_is_not_run_stays_one_that_eager_takes() -> None:
    then = Program(("a",), (Call("torch.sum", (A,), {"dim": 1}, "b"),), (B,))
    otherwise = Program(("a",), (Call("torch.full", ([2], 2.0), {}, "b"),), (B,))
    calls = (Call("torch.cond", (Ref("p"), then, otherwise, (Ref("x"),)), {}, "v0"),)
    inputs = {"p": torch.tensor(False), "x": torch.rand(2, 3)}
    found = reduced(
        Case(Program(("p", "x"), calls, Ref("v0", (0,))), inputs, "test", "test", "float32"), RefusesBranches()
    )
    (call,) = found.value.program.calls
    operands = [found.value.inputs[ref.name] for ref in call.args[3]]
    forms = {tuple((result.shape, result.dtype) for result in body(*operands)) for body in call.bodies()}
    assert len(forms) == 1
