"""Scalars of ops that are other numbers at each call: optimizer steps, and BatchNorm's cumulative average."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg")


def sgd_step(p, g, m, v, step, lr, *, foreach):
    sgd(p, g, m, has_sparse_grad=False, foreach=foreach, weight_decay=0.01, momentum=0.9, lr=lr, dampening=0.0,
        nesterov=False, maximize=False)  # fmt: skip
    return p, m


def adam_step(p, g, m, v, step, lr, *, foreach):
    adam(p, g, m, v, [], step, foreach=foreach, amsgrad=False, beta1=0.9, beta2=0.999, lr=lr, weight_decay=0.0,
         eps=1e-8, maximize=False)  # fmt: skip
    return p, m, v, step


def by_hand(p, g, m, v, step, lr, *, foreach):
    out = [x.lerp(y, lr).addcdiv(y, z.sqrt() + 1e-8, value=-lr) for x, y, z in zip(p, g, v, strict=True)]
    return torch._foreach_addcmul(out, g, g, value=lr) if foreach else out


@pytest.mark.few(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("step", [sgd_step, adam_step, by_hand])
def test_a_learning_rate_may_change(step: Any, foreach: bool, target: str) -> None:
    def call(lr: float, count: int) -> list[Any]:
        p, g, m, v = ([torch.randn(2, 3) for _ in range(2)] for _ in range(4))
        return [p, g, m, [t.abs() for t in v], [torch.tensor(float(count)) for _ in range(2)], lr]

    def program(*args: Any) -> Any:
        return step(*args, foreach=foreach)

    exe = compile(program, call(0.1, 3), target)
    for lr, count in ((0.1, 3), (0.05, 4), (0.3, 10)):
        mine = call(lr, count)
        theirs = copy.deepcopy(mine)
        torch.testing.assert_close(exe(*mine), program(*theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("target", TARGETS)
def test_a_cumulative_average_trains_step_by_step(target: str) -> None:
    mine = torch.nn.BatchNorm1d(3, momentum=None)
    theirs = copy.deepcopy(mine)
    exe = compile(mine, (torch.randn(5, 3),), target)
    for step in range(1, 5):
        x = torch.randn(5, 3) * step + step
        torch.testing.assert_close(exe(x), theirs(x))
        torch.testing.assert_close(list(mine.buffers()), list(theirs.buffers()))


def test_a_scalar_that_cpp_makes_another_of_is_guarded() -> None:
    x = torch.randn(2, 4)
    exe = compile(lambda x, eps: F.rms_norm(x, (4,), eps=eps), (x, 0.7), "evaluator")
    torch.testing.assert_close(exe(x, 0.7), F.rms_norm(x, (4,), eps=0.7))
    with pytest.raises(GuardError, match="argument 1"):
        exe(x, 1.3)
