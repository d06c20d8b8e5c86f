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


def test_a_running_mean_has_the_room_of_the_mean_whose_terms_cancel() -> None:
    """Beside the end of float64's range the op's decomposition gives other numbers, so that the op itself is run."""
    inputs = tuple(f"x{i}" for i in range(3))
    call = Call("torch.nn.functional.batch_norm", tuple(map(Ref, inputs)), {"training": True, "momentum": 0.5}, "r0")
    program = Program(inputs, (call,), ())
    largest = torch.finfo(torch.float64).max
    x = torch.tensor([[1.0, 2.0], [largest, 3.0], [-1.5, 5.0], [-largest, 6.0]], dtype=torch.float64)
    statistics = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)

    def left_with(channel: int, mean: float) -> Finding:
        def other(*given: Tensor) -> tuple[()]:
            program(*given)
            given[1][channel] = mean
            return ()

        return compare(program, other, x, *statistics)

    assert left_with(0, -0.0625).outcome is not Outcome.MISMATCH  # exact, where eager's has lost 1 and -1.5, or one
    assert left_with(1, 2.5).kind == Kind.MUTATION
