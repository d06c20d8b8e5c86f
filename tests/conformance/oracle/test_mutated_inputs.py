"""What a program leaves its inputs with is judged with as much effort as its results."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.program import Call, Program, Ref


def test_what_an_input_is_left_with_is_judged_as_a_result_is() -> None:
    calls = (Call("torch.sum", (Y,), {}, "r0"), Call("torch.Tensor.copy_", (X, Ref("r0")), {}, "r1"))
    program, terms = Program(("x0", "x1"), calls, ()), torch.tensor([1e8, 1.0, -1e8, 1.0])

    def left_with(value: float) -> Finding:
        def other(x: Tensor, _: Tensor) -> tuple[()]:
            x.fill_(value)
            return ()

        return compare(program, other, torch.zeros(()), terms)

    assert all(left_with(value).outcome is not Outcome.MISMATCH for value in (0.0, 1.0, 2.0))
    assert left_with(1e4).kind == Kind.MUTATION
