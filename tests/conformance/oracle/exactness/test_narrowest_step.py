"""Programs of mixed precision are judged in the precision of the steps that round, not of their first or last dtype."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tests.sampling import one_in
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors

STEPS = ("sin", "cos", "exp", "atan", "sigmoid", "abs", "neg", "t")
WRONG = 1e-9
"""Relative: no digit of float32 shows it, and some millions of float64's ULPs."""

SEEDS = range(24)


def _program(*calls: tuple[str, tuple[object, ...]], inputs: tuple[str, ...] = ("x",)) -> Program:
    steps = tuple(Call(f"torch.{name}", args, {}, f"r{k}") for k, (name, args) in enumerate(calls))
    return Program(inputs, steps, Ref(f"r{len(steps) - 1}"))


def _mixed(seed: int, widened_first: bool) -> Program:
    """Steps in float32 and then in float64, or in float64 alone on numbers of float32, and a sum at their end."""
    draw, calls, at = random.Random(seed), list[tuple[str, tuple[object, ...]]](), "x"

    def call(name: str, *args: object) -> None:
        nonlocal at
        calls.append((name, (Ref(at), *args)))
        at = f"r{len(calls) - 1}"

    def some(names: tuple[str, ...]) -> None:
        for name in draw.choices(names, k=draw.randint(1, 3)):
            call(name)

    some(("abs", "neg", "t") if widened_first else STEPS)
    call("Tensor.double")
    some(STEPS)
    call("exp")
    call("sum", draw.randint(0, 1))
    return _program(*calls)


def _x(seed: int) -> Tensor:
    return torch.rand(6, 6, generator=torch.Generator().manual_seed(seed)) + 0.25


def _found(program: Program, args: tuple[Tensor, ...], actual: Tensor) -> Finding:
    given = copy_tensors(args)
    return judge(program, args, Observed(program(*given), given), Observed(actual, args))


def _in_another_order(program: Program, x: Tensor, fused: bool) -> Tensor:
    """The last sum from its other end; ``fused``: the steps of float32 computed in float64 and rounded once."""
    *steps, total = program.calls
    at = x
    for k, call in enumerate(steps):
        name = call.target.removeprefix("torch.")
        if name == "Tensor.double":
            at = at.double()
        elif fused and at.dtype is torch.float32 and steps[k + 1].target == "torch.Tensor.double":
            at = getattr(torch, name)(at.double()).float()
        else:
            at = getattr(torch, name)(at)
    return at.flip(int(total.args[1])).cumsum(int(total.args[1])).select(int(total.args[1]), -1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_answer_of_mixed_precision_is_not_accused(seed: int) -> None:
    program, x = _mixed(seed, widened_first=bool(seed % 2)), _x(seed)
    for fused in (False, True):
        finding = _found(program, (x,), _in_another_order(program, x, fused))
        assert finding.outcome is Outcome.PASS, finding


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", one_in(3, SEEDS))
def test_a_factor_that_only_float64_shows_is_accused(seed: int) -> None:
    program, x = _mixed(seed, widened_first=True), _x(seed)
    assert _found(program, (x,), program(x) * (1 + WRONG)).outcome is Outcome.MISMATCH


def test_a_factor_of_arithmetic_in_float64_on_float32_numbers_is_not_left_out() -> None:
    program = _program(("Tensor.double", (Ref("x"),)), ("sin", (Ref("r0"),)), ("mul", (Ref("r1"), 1 + WRONG)))
    x = _x(0)
    assert _found(program, (x,), x.double().sin()).outcome is Outcome.MISMATCH
    assert _found(program, (x,), program(x)).outcome is Outcome.PASS


def test_what_is_computed_in_float32_and_then_widened_counts_in_its_ulps() -> None:
    """Integers, which no floating dtype tells anything about, and a result of complex128."""
    program = _program(("special.modified_bessel_i0", (Ref("x"),)), ("Tensor.cdouble", (Ref("r0"),)))
    x = torch.arange(-5, 6, dtype=torch.int32)
    eager = program(x)
    beside = torch.special.modified_bessel_i0(x).nextafter(torch.tensor(torch.inf))
    assert _found(program, (x,), beside.cdouble()).outcome is Outcome.PASS
    assert _found(program, (x,), eager * (1 + 1e-4)).outcome is Outcome.MISMATCH


def test_a_conversion_to_fewer_bits_rounds() -> None:
    program = _program(
        ("sin", (Ref("x"),)), ("Tensor.bfloat16", (Ref("r0"),)), ("Tensor.double", (Ref("r1"),)), ("exp", (Ref("r2"),))
    )
    x = _x(1).double()
    halves = x.sin().bfloat16()
    beside = halves.nextafter(torch.tensor(torch.inf, dtype=torch.bfloat16))
    assert _found(program, (x,), beside.double().exp()).outcome is not Outcome.MISMATCH
    assert _found(program, (x,), halves.double().exp() * 1.1).outcome is Outcome.MISMATCH


def test_each_result_has_the_precision_of_its_own_steps() -> None:
    calls = (
        Call("torch.Tensor.double", (Ref("x"),), {}, "wide"),
        Call("torch.sin", (Ref("wide"),), {}, "a"),
        Call("torch.sin", (Ref("x"),), {}, "narrow"),
        Call("torch.Tensor.double", (Ref("narrow"),), {}, "b"),
        Call("torch.Tensor.double", (Ref("x"),), {}, "c"),
    )
    referee = Referee(Program(("x",), calls, (Ref("a"), Ref("b"), Ref("c"))), (_x(2),))
    assert referee.dtype is torch.float32
    assert [referee.leaf_dtype(index) for index in range(3)] == [torch.float64, torch.float32, None]


def test_a_step_within_an_op_may_round_to_fewer_bits_than_its_results_have() -> None:
    """``binary_cross_entropy_with_logits`` takes logarithms of float32 numbers, and multiplies them by float64 ones."""
    program = _program(("nn.functional.binary_cross_entropy_with_logits", (Ref("x"), Ref("y"))), inputs=("x", "y"))
    args = torch.linspace(-5, 5, 9), torch.linspace(0, 1, 9, dtype=torch.float64)
    right = torch.nn.functional.binary_cross_entropy_with_logits(args[0].double(), args[1])
    assert Referee(program, args).leaf_dtype(0) is torch.float32
    assert _found(program, args, right * (1 + 2.0**-24)).ok
    assert _found(program, args, right * (1 + 2.0**-12)).outcome is Outcome.MISMATCH
    assert Referee(program, (args[0].double(), args[1])).leaf_dtype(0) is torch.float64
