"""Products scaled by alpha: before or after they are added up, where infinities decide between the two."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

LEFT = torch.tensor([[1.0, -3.0], [2.0, 0.5]])
RIGHT = torch.tensor([[1.0, 2.0], [4.0, -1.0]])
"""Products of both signs: the sum of infinity times each is NaN where infinity times their sum is not."""

CASES = {
    "addmm": (torch.ones(2, 2), LEFT, RIGHT),
    "addmv": (torch.ones(2), LEFT, RIGHT[0]),
    "baddbmm": (torch.ones(2), LEFT.expand(3, 2, 2), RIGHT.expand(3, 2, 2)),
    "addbmm": (torch.ones(2, 2), LEFT.expand(3, 2, 2), RIGHT.expand(3, 2, 2)),
}


def scaled_last(op: str, base: Tensor, left: Tensor, right: Tensor, alpha: float) -> Tensor:
    product = left @ right
    return base + alpha * (product.sum(0) if op == "addbmm" else product)


def scaled_first(op: str, base: Tensor, left: Tensor, right: Tensor, alpha: float) -> Tensor:
    product = (alpha * left) @ right
    return base + (product.sum(0) if op == "addbmm" else product)


def judged(op: str, alpha: float, args: tuple[Tensor, ...], eager: Tensor, answer: Tensor) -> Outcome:
    call = Call(f"torch.{op}", (Ref("x"), Ref("a"), Ref("b")), {"alpha": alpha}, "y")
    program = Program(("x", "a", "b"), (call,), Ref("y"))
    return judge(program, args, Observed(eager, args), Observed(answer, args)).outcome


@pytest.mark.few(4)
@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("alpha, dtype", [(math.inf, torch.float32), (-math.inf, torch.float64)])
def test_infinity_may_scale_each_product_or_their_sum(op: str, alpha: float, dtype: torch.dtype) -> None:
    args = tuple(tensor.to(dtype) for tensor in CASES[op])
    first, last = (scaled(op, *args, alpha) for scaled in (scaled_first, scaled_last))
    assert not torch.equal(torch.isnan(first), torch.isnan(last))
    for eager, answer in ((first, last), (last, first)):  # which of the two eager gives depends on the processor
        assert judged(op, alpha, args, eager, answer) in (Outcome.PASS, Outcome.ILL_CONDITIONED)


@pytest.mark.few(2)
@pytest.mark.parametrize("op", CASES)
def test_no_other_number_is_right_for_it(op: str) -> None:
    args = CASES[op]
    eager = scaled_first(op, *args, math.inf)
    assert judged(op, math.inf, args, eager, torch.full_like(eager, 7.0)) is Outcome.MISMATCH
