"""Programs made out of programs: what a rewrite keeps, what it changes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.conformance.program.literals import ProgramError, Ref
from torchstone.conformance.program.program import Call, Program

TARGETS = ("torch.add", "torch.mul", "torch.sub")


@st.composite
def programs(draw: Any) -> Program:
    """A chain or a heap of elementwise calls, whose operands are inputs, earlier results and numbers."""
    names = [f"x{at}" for at in range(draw(st.integers(1, 3)))]
    inputs, calls = tuple(names), []
    for at in range(draw(st.integers(0, 4))):
        first = Ref(draw(st.sampled_from(names)))
        second = draw(st.sampled_from(names).map(Ref) | st.integers(-3, 3))
        kwargs = draw(st.just({}) | st.just({"out": None}))
        calls.append(Call(draw(st.sampled_from(TARGETS)), (first, second), kwargs, f"r{at}"))
        names.append(f"r{at}")
    outputs = draw(st.lists(st.sampled_from(names).map(Ref), min_size=1, max_size=3))
    return Program(inputs, tuple(calls), {"all": outputs})


def tensors(program: Program) -> tuple[torch.Tensor, ...]:
    return tuple(torch.arange(3.0) + at for at in range(len(program.inputs)))


def values(program: Program) -> list[list[float]]:
    return [tensor.tolist() for tensor in program(*tensors(program))["all"]]


@given(programs())
def test_a_rewrite_that_changes_nothing_gives_an_equal_program(program: Program) -> None:
    same = program.rewrite(lambda call: call.map_arguments(lambda leaf: leaf), outputs=lambda leaf: leaf)
    assert same == program
    assert program.rewrite(lambda call: call.map_arguments(lambda value: value, nested=False)) == program
    assert program.rename({}) == program


@given(programs())
def test_a_renamed_program_computes_the_same_and_can_be_renamed_back(program: Program) -> None:
    names = {name: f"{name}_" for name in (*program.inputs, *(call.result for call in program.calls))}
    renamed = program.rename(names)
    defined = {*renamed.inputs, *(call.result for call in renamed.calls)}
    assert defined == set(names.values())
    assert {ref.name for call in renamed.calls for ref in call.refs()} <= defined
    assert values(renamed) == values(program)
    assert renamed.rename({new: old for old, new in names.items()}) == program


@given(programs(), st.data())
def test_a_call_is_dropped_when_its_references_go_elsewhere(program: Program, data: st.DataObject) -> None:
    if not program.calls:
        return
    gone = data.draw(st.sampled_from(program.calls))

    def operand(leaf: Any) -> Any:
        return gone.args[0] if isinstance(leaf, Ref) and leaf.name == gone.result else leaf

    left = program.rewrite(lambda call: None if call is gone else call.map_arguments(operand), outputs=operand)
    assert [call.result for call in left.calls] == [call.result for call in program.calls if call is not gone]
    values(left)


ADD = Call("torch.add", (Ref("x0"), 1), {"alpha": 2}, "r0")
TWICE = Program(("x0",), (ADD, Call("torch.mul", (Ref("r0"), [3, (4,)]), {}, "r1")), Ref("r1"))


def test_leaves_are_met_in_order_and_arguments_as_wholes() -> None:
    met: list[Any] = []
    TWICE.rewrite(lambda call: call.map_arguments(lambda leaf: met.append(leaf) or leaf))
    assert met == [Ref("x0"), 1, 2, Ref("r0"), 3, 4]
    met.clear()
    TWICE.rewrite(lambda call: call.map_arguments(lambda value: met.append(value) or value, nested=False))
    assert met == [Ref("x0"), 1, 2, Ref("r0"), [3, (4,)]]


def test_calls_go_before_the_others() -> None:
    copy = Call("torch.clone", (Ref("x0"),), {}, "copy")
    got = TWICE.rewrite(
        lambda call: call.map_arguments(lambda leaf: Ref("copy") if leaf == Ref("x0") else leaf), before=[copy]
    )
    assert [call.result for call in got.calls] == ["copy", "r0", "r1"]
    assert got.calls[1].args == (Ref("copy"), 1)


def test_a_rewrite_is_checked() -> None:
    with pytest.raises(ProgramError, match="'r0' is used before it is defined"):
        TWICE.rewrite(lambda call: None if call is ADD else call)
    with pytest.raises(ProgramError, match="'x0' is used before it is defined"):
        TWICE.rewrite(lambda call: call, inputs=["x1"])
    with pytest.raises(ProgramError, match="output 'r1' is not defined"):
        TWICE.rewrite(lambda call: replace(call, result="r2") if call.result == "r1" else call)
