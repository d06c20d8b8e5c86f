"""Steps that may draw random numbers: only those that do are the numbers that eager drew, the others are rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchstone.conformance.oracle.random.replay import call_and_see_rng
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref

aten = torch.ops.aten


def attention(dropout: float) -> Program:
    x = Ref("x")
    call = Call("torch.nn.functional.scaled_dot_product_attention", (x, x, x), {"dropout_p": dropout}, "r0")
    return Program(("x",), (call,), Ref("r0"))


def leaky(training: bool) -> Program:
    return Program(("x",), (Call("torch.rrelu", (Ref("x"), 0.1, 0.7, training), {}, "r0"),), Ref("r0"))


X = torch.linspace(-3, 2, 120).view(1, 2, 6, 10)


@pytest.mark.parametrize("program", [attention(0.0), leaky(False)], ids=["attention", "rrelu"])
def test_a_step_that_draws_nothing_is_rounded(program: Program) -> None:
    referee = Referee(program, (X,), seed=3)
    truth = referee.float64.leaves[0]
    assert len(referee.rounded_runs) == 4
    for run in referee.rounded_runs:
        assert not torch.equal(run.leaves[0], truth) and torch.allclose(run.leaves[0], truth, 1e-4, 1e-4)
    assert not referee._draws
    assert not torch.equal(truth.float(), truth)  # float64's own: not the numbers that eager gave


@pytest.mark.parametrize("program", [attention(0.5), leaky(True)], ids=["attention", "rrelu"])
def test_a_step_that_draws_is_what_eager_drew(program: Program) -> None:
    referee = Referee(program, (X,), seed=3)
    assert referee._draws
    torch.manual_seed(3)
    eager = program(X)
    assert torch.allclose(referee.float64.leaves[0].float(), eager, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("draw", "drew"),
    [
        (lambda: call_and_see_rng(aten.bernoulli.default, (X.abs() / 3,), {}), True),
        (lambda: call_and_see_rng(aten.bernoulli.default, (X.abs() / 3,), {"generator": torch.Generator()}), False),
        (lambda: call_and_see_rng(aten.native_dropout.default, (X, 0.5, False), {}), False),
        (lambda: call_and_see_rng(aten.mul.Tensor, (X, X), None), False),
    ],
    ids=["draws", "a generator of its own", "does not draw", "never draws"],
)
def test_whether_a_step_drew_is_seen_in_the_generator(draw: Callable[[], tuple[Tensor, bool]], drew: bool) -> None:
    assert draw()[1] is drew
