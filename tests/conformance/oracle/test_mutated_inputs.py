"""What a program leaves its inputs with is judged with as much effort as its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors


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


@pytest.mark.torture
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


@pytest.mark.parametrize(
    ("op", "training"), [("native_batch_norm", True), ("native_batch_norm", False), ("_batch_norm_with_update", True)]
)
def test_running_statistics_are_written_to_in_training_alone(op: str, training: bool) -> None:
    """With a momentum of 0 they are what they were: a NaN of other bits is no stray write."""
    names = ("x", "mean", "variance")
    mode = (training,) if op == "native_batch_norm" else ()
    arguments = (Ref("x"), None, None, Ref("mean"), Ref("variance"), *mode, 0.0, 1e-5)
    program = Program(names, (Call(f"torch.ops.aten.{op}.default", arguments, {}, "y"),), Ref("y"))
    args = torch.zeros(2, 1), torch.zeros(1), torch.tensor([math.nan])

    def other(*given: Tensor) -> Any:
        result = program(*given)
        given[2].view(torch.int32).bitwise_xor_(1)  # a NaN, another one
        return result

    finding = compare(program, other, *args)
    assert finding.ok if training else finding.kind == Kind.MUTATION, finding


EMPTY_BATCH = torch.zeros(5, 5, 0), torch.linspace(2.0, 7.0, 5), torch.linspace(1.0, 6.0, 5), torch.ones(5)
NORM = Program(
    tuple(f"x{i}" for i in range(4)),
    (Call("torch.nn.functional.instance_norm", tuple(Ref(f"x{i}") for i in range(4)), {}, "r0"),),
    Ref("r0"),
)


def left_with(program: Program, inputs: tuple[Tensor, ...], index: int, factor: float, at: int = 2) -> Finding:
    """The finding on a backend that gives what eager does, but for one element of one input."""

    def other(*given: Tensor) -> object:
        found = program(*given)
        given[index][at] *= factor
        return found

    return compare(program, other, *inputs)


def test_what_eager_writes_is_judged_as_a_number_where_it_happens_to_be_the_same() -> None:
    """Of an empty input ``instance_norm`` writes the mean of copies of the running statistics: the same, but for their
    rounding."""
    given = copy_tensors(EMPTY_BATCH)
    NORM(*given)
    assert all(map(torch.equal, given, EMPTY_BATCH)), "eager writes the numbers that are there"
    for index in (1, 2):
        assert left_with(NORM, EMPTY_BATCH, index, 1 + 2**-22).ok
        assert left_with(NORM, EMPTY_BATCH, index, 1 + 1e-4).kind == Kind.MUTATION
    assert left_with(NORM, EMPTY_BATCH, 3, 1 + 2**-22).kind == Kind.MUTATION, "no step writes to the weight"


@pytest.mark.few(1)
@pytest.mark.parametrize("after", [(), (Call("torch.dropout", (Y, 0.5, True), {}, "r1"),)], ids=["same", "random"])
def test_a_stray_write_is_found_beside_one_of_the_same_numbers(after: tuple[Call, ...]) -> None:
    calls = (Call("torch.Tensor.mul_", (X, 1.0), {}, "r0"), *after)
    program = Program(("x0", "x1"), calls, Ref(calls[-1].result))
    x, y = torch.linspace(1.0, 2.0, 8)[::2], torch.linspace(3.0, 4.0, 400)

    class Leaves:
        """Eager, that has ``change`` done to the inputs afterwards."""

        name = "leaves"

        def __init__(self, change: Callable[[Tensor, Tensor], object]) -> None:
            self.change = change

        def compile(self, fn: Program, args: tuple[Tensor, ...]) -> Callable[..., Any]:
            def run(x: Tensor, y: Tensor) -> object:
                found = fn(x, y)
                self.change(x, y)
                return found.clone() if after else found

            return run

    def kind(change: Callable[[Tensor, Tensor], object]) -> str:
        verdict = run_case(Case(program, {"x0": x, "x1": y}, "test", "mul_", "float32"), Leaves(change))
        assert verdict.outcome in (Outcome.PASS, Outcome.MISMATCH), verdict
        return verdict.kind

    assert not kind(lambda x, y: x[1].mul_(1 + 2**-22))
    assert kind(lambda x, y: x[1].mul_(1.5)), "another number"
    assert kind(lambda x, y: y[1].mul_(1 + 2**-22)) == Kind.MUTATION, "an input that no step writes to"
    assert kind(lambda x, y: x.as_strided((1,), (1,), 1).mul_(1.5)) == Kind.MUTATION, "between the elements"
