"""The float64 twin of a program: what it can run that the program itself runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one, several
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.finding import Finding
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


FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu)


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_what_becomes_float8_is_that_in_the_twin_too(dtype: torch.dtype) -> None:
    """It is no number that was rounded: half a step more is wrong, and so is what the dtype does not saturate to."""
    x = torch.tensor([[3.3, 5.0, 0.4], [1e30, -2.6, 7.9]])
    calls = (("Tensor.to", X, dtype), ("Tensor.to", Ref("r0"), torch.float32), ("sum", Ref("r1"), 1))
    program = several(*calls)
    right = x.to(dtype).float()
    assert widen_program(program)(x.double())[0] == right.double()[0].sum()
    wrong = right.clone()
    wrong[0, 1] *= 0.9375
    assert compare(program, lambda x: right.sum(1), x).outcome == "pass"
    assert compare(program, lambda x: wrong.sum(1), x).outcome == "mismatch"


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_what_rounds_to_another_float8_is_ill_conditioned_and_not_wrong(dtype: torch.dtype) -> None:
    """A sum of the first step in another order may be on the other side of a number halfway between two of 8 bits."""
    x, w, v = (torch.randn(64, 16, generator=torch.Generator().manual_seed(seed))[:rows] for seed, rows in WEIGHTS)
    first, second = (("matmul", X, Ref("w")), ("matmul", Ref("r2"), Ref("v")))
    cast = (("Tensor.to", Ref("r0"), dtype), ("Tensor.to", Ref("r1"), torch.float32))
    program = several(first, *cast, second, inputs=("x0", "w", "v"))

    def other(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return (x.double() @ w.double()).float().to(dtype).float() @ v

    def coarse(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return (x @ w * 1.02).to(dtype).float() @ v

    assert compare(program, other, x, w, v).outcome in ("pass", "ill-conditioned")
    assert compare(program, coarse, x, w, v).outcome == "mismatch"


WEIGHTS = ((1, 64), (2, 16), (3, 16))


def test_where_a_function_of_pytorchs_asks_for_float32_there_is_no_float64_run_and_no_bound_without_room() -> None:
    """The float64 twin of a variance of integers is one in float32, as is each of its roundings."""
    variance = Program(
        ("x0",),
        (Call("torch.masked.var", (X,), {"correction": 0}, "v"), Call("torch.exp", (Ref("v"),), {}, "e")),
        Ref("e"),
    )
    numbers = torch.tensor([[-1, 1], [6, 9], [9, 1]])
    eager = variance(numbers)

    def off_by(ulps: int) -> Finding:
        return compare(variance, lambda x: eager - ulps, numbers)

    assert eager == 10210133.0
    assert off_by(19).outcome is Outcome.PASS and "computes in torch.float32" in off_by(19).evidence["rule"]
    assert off_by(200).outcome is Outcome.MISMATCH
