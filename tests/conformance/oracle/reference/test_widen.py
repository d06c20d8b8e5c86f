"""The float64 twin of a program: what it can run that the program itself runs."""

from __future__ import annotations

import torch

from torchstone.conformance.oracle.reference.widen import widen_inputs, widen_program
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
