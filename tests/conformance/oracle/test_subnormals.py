"""What follows from a subnormal number that is flushed to zero between two steps."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import X, compare
from torchstone.conformance.oracle.perturbation.rounding import RandomRounding
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


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("units", "wrong"), [(1, False), (-1, False), (6, True), pytest.param(-6, True, marks=pytest.mark.torture)]
)
def test_a_subnormal_step_has_the_units_that_such_numbers_have(units: int, wrong: bool) -> None:
    """Of a few digits, where the rounding of a normal number would be a hundredth of that."""
    x = torch.tensor([0.0, 14.0, 13.3, 12.9], dtype=torch.float16)
    steps = (
        Call("torch.nn.functional.softmin", (X,), {"dim": 0}, "r0"),
        Call("torch.mul", (Ref("r0"), 4096.0), {}, "r1"),
    )
    off = torch.tensor([0, units, 0, 0]) * torch.finfo(torch.float16).smallest_normal * 2**-10
    found = compare(Program(("x0",), steps, Ref("r1")), lambda x: (torch.softmax(-x, 0) + off.half()) * 4096.0, x)
    assert (found.outcome == "mismatch") == wrong, found


def test_what_is_subnormal_is_not_rounded_to_the_other_sign() -> None:
    x = torch.tensor([1e-40, -1e-8, 1e-7, 0.0], dtype=torch.float64)
    with RandomRounding(torch.float16, 0):
        found = torch.stack([x * 1.1 for _ in range(20)])
    assert bool((found.sign() * x.sign() >= 0).all())
    assert bool((found[:, 2] > 1.5e-7).any()), "by half as much again"
