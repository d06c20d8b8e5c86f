"""Programs with branches and loops: run, traced, written down and read again."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler._torch.fake_tensors import FakeTensorMode
from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.reference.widen import widen_program
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import to_module
from torchstone.conformance.program.program import Call, Program, ProgramError, Ref
from torchstone.conformance.repro.script import render_script

A, B = Ref("a"), Ref("b")
THEN = Program(("a", "b"), (Call("torch.sin", (A,), {}, "c"), Call("torch.add", (Ref("c"), B), {}, "d")), (Ref("d"),))
ELSE = Program(("a", "b"), (Call("torch.mul", (A, B), {}, "c"),), (Ref("c"),))
BELOW = Program(("a", "b"), (Call("torch.lt", (A, 3), {}, "c"),), Ref("c"))
STEP = Program(
    ("a", "b"), (Call("torch.add", (A, 1), {}, "c"), Call("torch.mul", (B, 2), {}, "d")), (Ref("c"), Ref("d"))
)
BOTH = Program(
    ("p", "x", "i"),
    (
        Call("torch.cond", (Ref("p"), THEN, ELSE, (Ref("x"), Ref("x"))), {}, "v0"),
        Call("torch.while_loop", (BELOW, STEP, (Ref("i"), Ref("v0", (0,)))), {}, "v1"),
    ),
    (Ref("v0", (0,)), Ref("v1")),
)
X = torch.tensor([0.5, -2.0])


def _case(pred: bool = True, start: int = 0) -> Case:
    inputs = {"p": torch.tensor(pred), "x": X.clone(), "i": torch.tensor(start)}
    return Case(BOTH, inputs, "test", "control", "float32")


@pytest.mark.parametrize(("pred", "start"), [(True, 0), (False, 2), (True, 3)])
def test_it_runs_as_pytorch_runs_it(pred: bool, start: int) -> None:
    case = _case(pred, start)
    branch, (number, value) = case.program(*case.fresh_args())
    wanted = X.sin() + X if pred else X * X
    assert torch.equal(branch, wanted) and torch.equal(value, wanted * 2 ** (3 - start)) and int(number) == 3
    assert value.data_ptr() != branch.data_ptr(), "without an iteration too, as torch.while_loop"
    again, (_, traced) = to_module(case.program)(*case.fresh_args())
    assert torch.equal(again, branch) and torch.equal(traced, value)


def test_tracers_are_given_the_op_of_pytorch() -> None:
    targets = [node.target for node in to_module(BOTH).graph.nodes if node.op == "call_function"]
    assert torch.ops.higher_order.cond in targets and torch.ops.higher_order.while_loop in targets
    with FakeTensorMode() as mode:
        pred, x = mode.from_tensor(torch.tensor(True)), mode.from_tensor(X)
        wrong = Program(("a", "b"), (Call("torch.sum", (A,), {}, "c"),), (Ref("c"),))
        with pytest.raises(Exception, match="cond"):  # a branch that would not be taken, and gives another shape
            Program(
                ("p", "x"), (Call("torch.cond", (Ref("p"), THEN, wrong, (Ref("x"), Ref("x"))), {}, "v"),), Ref("v")
            )(pred, x)


def test_a_loop_without_an_end_is_an_error() -> None:
    stay = Program(("a", "b"), (Call("torch.clone", (A,), {}, "c"), Call("torch.clone", (B,), {}, "d")), STEP.outputs)
    call = Call("torch.while_loop", (BELOW, stay, (Ref("i"), Ref("x"))), {}, "v")
    with pytest.raises(RuntimeError, match="not at an end after 1000 iterations"):
        Program(("i", "x"), (call,), Ref("v"))(torch.tensor(0), X)


def test_it_is_written_and_read_as_data() -> None:
    case = _case()
    assert Program.from_json(BOTH.to_json()) == BOTH
    assert Case.from_bytes(case.to_bytes()).to_bytes() == case.to_bytes()
    forbidden = BOTH.to_json().replace("torch.sin", "os.system")
    with pytest.raises(ProgramError, match=r"unknown or forbidden target 'os\.system'"):
        Program.from_json(forbidden)
    flat = Program(("x",), (), (Ref("x"),))
    deep = flat
    for _ in range(40):
        deep = Program(("x",), (Call("torch.cond", (Ref("x"), deep, flat, (Ref("x"),)), {}, "v"),), (Ref("v"),))
    with pytest.raises(ProgramError, match="nested more than 32 deep"):
        Program.from_data(deep.to_data())
    assert [call.target for call in BOTH.every_call][:3] == ["torch.cond", "torch.sin", "torch.add"]


def test_a_body_sees_its_operands_alone() -> None:
    with pytest.raises(ProgramError, match="'x' is used before it is defined"):
        Program(("a",), (Call("torch.sin", (Ref("x"),), {}, "c"),), (Ref("c"),))


def test_the_float64_twin_has_wider_bodies() -> None:
    cast = Program(("a",), (Call("torch.Tensor.to", (A, torch.float16), {}, "c"),), (Ref("c"),))
    whole = Program(("p", "x"), (Call("torch.cond", (Ref("p"), cast, cast, (Ref("x"),)), {}, "v"),), Ref("v"))
    (wide,) = widen_program(whole)(torch.tensor(True), X)
    assert wide.dtype == torch.float64


@pytest.mark.parametrize("backend", ["eager", "linalg"])
def test_a_compiler_is_asked_for_it(backend: str) -> None:
    verdict = run_case(_case(), load(backend))
    assert verdict.outcome is Outcome.PASS, verdict.message
    if backend == "linalg":
        assert {"flat.cond", "flat.while"} <= set(verdict.evidence["ran"]["linalg"])


def test_the_script_has_functions() -> None:
    text = render_script(_case())
    assert "torch.cond(p, v0_body0, v0_body1, (x, x))" in text and "torch.while_loop(v1_body0, v1_body1, " in text
    assert "    def v0_body1(a, b):\n        c = torch.mul(a, b)\n        return (c,)\n" in text
    compile(text, "script", "exec")


@pytest.mark.usefixtures("new_ops")
def test_a_layout_that_changes_in_a_loop_is_declined_by_torch_compile_and_no_error_of_the_backend_behind() -> None:
    step = Program(
        STEP.inputs, (*STEP.calls, Call("torch.Tensor.contiguous", (Ref("d"),), {}, "e")), (Ref("c"), Ref("e"))
    )
    call = Call("torch.while_loop", (BELOW, step, (Ref("i"), Ref("x"))), {}, "v")
    inputs = {"i": torch.tensor(0), "x": torch.ones(2, 3).t()}
    verdict = run_case(
        Case(Program(("i", "x"), (call,), Ref("v")), inputs, "t", "t", "t"), load("tests.new_ops:changes_nothing")
    )
    assert (verdict.outcome, verdict.stage) == (Outcome.UNSUPPORTED, "capture"), verdict.message
