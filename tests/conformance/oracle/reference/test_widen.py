"""The float64 twin of a program: what it can run that the program itself runs."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import X, compare, one, several
from torchstone.conformance.oracle.reference.widen import NoTwin, widen_inputs, widen_program
from torchstone.conformance.program.program import Call, Program, Ref


def test_the_twin_writes_in_place_and_takes_gradients() -> None:
    calls = (
        Call("torch.Tensor.requires_grad_", (Ref("x1"),), {}, "leaf"),
        Call("torch.Tensor.mul_", (Ref("x0"), Ref("leaf")), {}, "product"),
        Call("torch.autograd.grad", ([Ref("product")], [Ref("leaf")]), {}, "gradient"),
    )
    program = Program(("x0", "x1"), calls, Ref("gradient", (0,)))
    with torch.no_grad():  # as in a worker
        inputs = widen_inputs((torch.tensor([3.0, 4.0])[1:], torch.tensor([2.0])))
        assert widen_program(program)(*inputs).tolist() == [4.0]
    assert inputs[0].tolist() == [8.0]


def test_widening_keeps_strides_and_aliases() -> None:
    base = torch.arange(12.0)
    first, second = widen_inputs((base[:6].reshape(2, 3).t(), base[2:8]))
    assert (first.dtype, first.stride()) == (torch.float64, (1, 3))
    first.zero_()
    assert second.tolist() == [0, 0, 0, 0, 6, 7]
    with pytest.raises(NoTwin, match="view the same memory"):
        widen_inputs((base, base.view(torch.int32)))


def test_widening_a_program_takes_its_dtypes_along() -> None:
    program = several(("Tensor.half", X), ("sum", Ref("r0"), 0))
    widened = widen_program(Program(program.inputs, program.calls, Ref("r1")))
    assert widened(torch.ones(2, dtype=torch.float64)).dtype is torch.float64
    zeros = widen_program(one("zeros_like", X, dtype=torch.complex64))
    assert zeros(torch.ones(1, dtype=torch.float64)).dtype is torch.complex128


def test_powers_of_two_are_no_rounded_numbers() -> None:
    """In the twin, too, a number becomes the power of two next to it: any other one is wrong."""
    x = torch.tensor([3.0, 5.0, 0.4])
    program = several(("Tensor.to", X, torch.float8_e8m0fnu), ("Tensor.to", Ref("r0"), torch.float32))
    program = Program(program.inputs, program.calls, Ref("r1"))
    assert widen_program(program)(x.double()).tolist() == program(x).tolist() == [4.0, 4.0, 0.5]
    assert compare(program, lambda x: torch.tensor([4.0, 4.0, 0.5]), x).outcome == "pass"
    assert compare(program, lambda x: torch.tensor([2.0, 4.0, 0.5]), x).outcome == "mismatch"
