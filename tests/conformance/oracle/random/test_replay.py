"""Steps that may draw random numbers: only those that do are the numbers that eager drew, the others are rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.random.test_random_compare import claiming
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.oracle.random.replay import ReplayRng, call_and_see_rng
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.case import Case
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


def near_zero(count: int = 4096) -> tuple[Program, Tensor]:
    """Normal numbers of a mean that is rounded, and many of which are next to 0 where mean and draw cancel."""
    calls = (Call("torch.exp", (Ref("x"),), {}, "mean"), Call("torch.normal", (Ref("mean"), 1.0), {}, "y"))
    return Program(("x",), calls, Ref("y")), torch.linspace(-1, 1, count)


def test_what_rounding_of_its_operands_does_to_a_step_that_draws_is_seen() -> None:
    """A mean that is an ULP off is right, and many ULPs beside a number in which it cancels. Another draw is wrong."""
    program, x = near_zero()
    case = Case(program, {"x": x}, "test", "normal", "float32")

    def drawn(up: float, other: int = 0) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            mean = torch.nextafter(torch.exp(x), torch.full_like(x, up))
            return torch.normal(mean, 1.0).roll(other)

        return run

    for up in (-torch.inf, torch.inf):
        verdict = run_case(case, claiming("eager", drawn(up)))
        assert verdict.outcome in ("pass", "ill-conditioned"), verdict
    found = []
    for function in (program, drawn(torch.inf)):
        torch.manual_seed(20)
        found.append(function(x))
    beyond = (found[1] - found[0]).abs() > 8 * torch.finfo(torch.float32).eps * found[0].abs()
    assert bool(beyond.any()), "the case is none: no number lies near enough to 0"
    assert run_case(case, claiming("eager", drawn(torch.inf, other=1))).outcome == "mismatch"
    assert run_case(case, claiming("eager", lambda x: drawn(torch.inf)(x) + 1e-4)).outcome == "mismatch"


def test_a_step_is_made_again_in_eagers_dtype_from_eagers_state() -> None:
    program, x = near_zero(64)
    referee = Referee(program, (x,), seed=3)
    (draw,) = referee._draws
    torch.manual_seed(3)
    eager = program(x)
    assert torch.equal(draw.results[0], eager)
    assert torch.allclose(referee.float64.leaves[0].float(), eager, 0, 1e-6)
    shifted = Referee(program, (x + 1,), seed=3)
    torch.manual_seed(3)
    assert torch.equal(shifted._draws[0].results[0], program(x + 1))
    with torch.no_grad(), ReplayRng(referee._draws):
        again = program(x + 1)  # the same draws about another mean
    assert torch.allclose(again - torch.exp(x + 1), eager - torch.exp(x), 0, 1e-5)


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
