"""Parts of a program that have nothing to do with each other are judged one by one."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import X, Y, compare
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.program import Call, Program, Ref


def program(*calls: tuple, outputs: tuple[str, ...]) -> Program:
    made = tuple(Call(f"torch.{target}", args, {}, f"r{at}") for at, (target, *args) in enumerate(calls))
    return Program(("x0", "x1"), made, tuple(Ref(name) for name in outputs))


R0, R1 = Ref("r0"), Ref("r1")
APART = program(("exp", X), ("sin", Y), ("cos", R1), ("neg", X), outputs=("r0", "r2", "r3", "r1"))


def test_results_of_calls_that_share_none_are_parts() -> None:
    found = parts_of(APART, (torch.ones(2), torch.ones(2)))
    assert [(places, [call.result for call in part.calls]) for places, part in found] == [
        ([0], ["r0"]), ([2], ["r3"]), ([1, 3], ["r1", "r2"]),
    ]  # fmt: skip
    assert [part.outputs for _, part in found] == [Ref("r0"), Ref("r3"), {1: Ref("r2"), 3: Ref("r1")}]


@pytest.mark.parametrize(
    "whole",
    [
        program(("exp", X), ("sin", R0), outputs=("r0", "r1")),
        program(("exp", X), ("sin", Y), outputs=("r1",)),
        program(("Tensor.add_", X, 1.0), ("sin", X), outputs=("r0", "r1")),
        program(("exp", X), ("Tensor.mul_", R0, Y), ("sin", Y), outputs=("r0", "r2")),
        program(("linalg.inv", X), ("sin", Y), outputs=("r0", "r1")),
    ],
    ids=["one calls on the other", "one result", "an input written to", "a result written to", "eager refuses it"],
)
def test_one_part(whole: Program) -> None:
    assert parts_of(whole, (torch.zeros(2, 2), torch.ones(2, 2))) == [([0, 1][: len(whole.outputs)], whole)]


def test_calls_that_write_are_parts_where_they_share_no_input() -> None:
    apart = program(("Tensor.add_", X, 1.0), ("sin", Y), ("cos", R0), outputs=("r1", "r2"))
    found = parts_of(apart, (torch.ones(2), torch.ones(2)))
    assert [(places, part.inputs) for places, part in found] == [([0], ("x1",)), ([1], ("x0",))]
    row = torch.ones(4)
    assert len(parts_of(apart, (row[:2], row[2:]))) == 1, "they share memory"


def test_a_call_that_no_result_comes_from_is_of_the_part_that_it_writes_to() -> None:
    apart = program(("exp", X), ("Tensor.mul_", R0, 2.0), ("sin", Y), outputs=("r0", "r2"))
    found = parts_of(apart, (torch.ones(2), torch.ones(2)))
    calls = {places[0]: [call.result for call in part.calls] for places, part in found}
    assert calls == {0: ["r0", "r1"], 1: ["r2"]}


def test_each_part_is_judged_as_it_would_be_alone() -> None:
    vectors = program(("linalg.eigh", X), ("linalg.eigh", Y), ("exp", Y), outputs=("r0", "r1", "r2"))
    x = torch.tensor([[2.0, 1.0, 0.5], [1.0, 3.0, 0.0], [0.5, 0.0, 5.0]])

    def answers(change) -> Outcome:
        def backend(*args):
            first, second, third = vectors(*args)
            return change(first), second, third

        return compare(vectors, backend, x, x + 1).outcome

    assert answers(lambda pair: (pair[0], -pair[1])) is Outcome.PASS, "the signs of one, as of a program of one call"
    assert answers(lambda pair: (pair[0], pair[1].flip(1))) is Outcome.MISMATCH


def test_what_is_right_of_one_call_is_right_of_a_part() -> None:
    whole = program(("nn.functional.gelu", X), ("exp", Y), outputs=("r0", "r1"))

    def backend(x, y):
        return x * torch.special.ndtr(x.double()).float(), y.exp()

    x = torch.tensor([-9.0, -9.5, 1.0])
    assert (
        compare(whole, backend, x, x).outcome
        is compare(Program(("x0", "x1"), whole.calls[:1], R0), lambda x, y: backend(x, y)[0], x, x).outcome
        is Outcome.PASS
    )


def test_the_name_of_a_result_is_its_own() -> None:
    found = compare(APART, lambda x, y: (x.exp(), y.sin().cos(), -x, y.sin() * 1.1), torch.ones(2), torch.ones(2))
    assert found.outcome is Outcome.MISMATCH and found.message.startswith("output[3][0]: ")
    found = compare(APART, lambda x, y: (x + 7, y.sin(), -x, y.sin().cos()), torch.ones(2), torch.ones(2))
    assert found.message.startswith("output[0][0]: ") and found.evidence["where"] == "output[0]"


def test_what_a_part_wrote_to_its_input_is_judged_with_it() -> None:
    whole = program(("exp", X), ("Tensor.add_", Y, 1.0), outputs=("r0", "r1"))
    x = torch.tensor([1.0, float("nan")])

    def answers(change):
        def backend(x, y):
            return x.exp(), change(y.add_(1.0))

        return compare(whole, backend, x, x.clone())

    assert answers(lambda y: y).outcome is Outcome.PASS, "a NaN is left as eager left it"
    found = answers(lambda y: y.mul_(1.5) / 1.5)
    assert found.outcome is Outcome.MISMATCH and found.message.startswith("mutated: input[1]"), found
    assert found.evidence["where"] == "input[1]"
