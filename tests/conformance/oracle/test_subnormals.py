"""What follows from a subnormal number that is flushed to zero between two steps."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import X, compare
from torchstone.conformance.oracle.perturbation.subnormals import FlushSubnormals
from torchstone.conformance.program.program import Call, Program, Ref


@pytest.mark.parametrize(("given", "outcome"), [(0.0, "ill-conditioned"), (2e-25, "mismatch"), (-1e-25, "mismatch")])
def test_a_number_between_is_flushed_or_kept(given: float, outcome: str) -> None:
    steps = ((X, 1e-30), (Ref("r0"), 1e-10), (Ref("r1"), 1e15))
    program = Program(("x0",), tuple(Call("torch.mul", step, {}, f"r{k}") for k, step in enumerate(steps)), Ref("r2"))
    found = compare(program, lambda x: torch.tensor([given, 1.0]), torch.tensor([1.0, 1e25]))
    assert found.outcome == outcome, found


def test_an_input_is_not_flushed() -> None:
    program = Program(("x0",), (Call("torch.log", (X,), {}, "r0"),), Ref("r0"))
    assert compare(program, lambda x: torch.full((1,), -torch.inf), torch.tensor([1e-40])).outcome == "mismatch"


def test_zeros_that_lie_nowhere_are_not_flushed() -> None:
    """The gradient of ``sgn`` is a tensor without memory: who reads it ends the process."""
    x = torch.ones(3, requires_grad=True)
    with FlushSubnormals():
        (gradient,) = torch.autograd.grad(x.sgn().sum(), x)
    assert (gradient + x.detach()).tolist() == [1, 1, 1]
