"""A batch norm in evaluation may save its statistics or none: these very ones, and no other shape."""

from __future__ import annotations

import torch

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

EPS = 1e-3
X, MEAN, VAR = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(1)), torch.rand(3), torch.rand(3) + 0.5


def outcome(*saved: torch.Tensor, training: bool = False) -> Outcome:
    call = Call("torch.native_batch_norm", (Ref("x"), None, None, Ref("m"), Ref("v"), training, 0.1, EPS), {}, "r")
    program, args = Program(("x", "m", "v"), (call,), Ref("r")), (X, MEAN, VAR)
    left = tuple(t.clone() for t in args)
    expected = program(*left)
    given = (expected[0], *saved)
    return judge(program, args, Observed(expected, left), Observed(given, left)).outcome


def test_either_is_right_and_nothing_else() -> None:
    none, inverse = torch.empty(0), (VAR + EPS).rsqrt()
    assert outcome(none, none) is Outcome.PASS
    assert outcome(MEAN, inverse) is Outcome.PASS
    assert outcome(MEAN + 1, inverse) is Outcome.MISMATCH
    assert outcome(MEAN, VAR) is Outcome.MISMATCH
    assert outcome(MEAN[:2], inverse[:2]) is Outcome.MISMATCH


def test_in_training_they_are_those_of_the_batch() -> None:
    assert outcome(MEAN, (VAR + EPS).rsqrt(), training=True) is Outcome.MISMATCH
    mean, var = X.mean((0, 2)), X.var((0, 2), unbiased=False)
    assert outcome(mean, (var + EPS).rsqrt(), training=True) is Outcome.PASS
