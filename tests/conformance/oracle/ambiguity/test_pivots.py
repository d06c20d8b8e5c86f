"""Factors and their gradients are judged by the pivots that a backend shows, where other rows are as large."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

TIES = torch.tensor([[1.0, 2.0, 5.0], [-1.0, 3.0, 1.0], [1.0, 1.0, -2.0]])
ORDERS = ([1, 2, 3], [2, 2, 3], [3, 2, 3], [2, 3, 3])


def by_pivots(x: Tensor, pivots: list[int]) -> tuple[Tensor, Tensor]:
    """Both factors in one by these pivots, which autograd follows, and the pivots."""
    shown = torch.tensor(pivots, dtype=torch.int32)
    order = torch.lu_unpack(torch.zeros_like(x), shown, unpack_data=False)[0]
    a = order.mT @ x
    for k in range(len(a) - 1):
        below = a[k + 1 :, k : k + 1] / a[k, k]
        rest = a[k + 1 :, k + 1 :] - below * a[k : k + 1, k + 1 :]
        a = torch.cat([a[: k + 1], torch.cat([a[k + 1 :, :k], below, rest], 1)])
    return a, shown


def gradient_program() -> Program:
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "data"),
        Call("torch.Tensor.requires_grad_", (Ref("data"),), {}, "leaf"),
        Call("torch.linalg.lu_factor", (Ref("leaf"),), {}, "lu"),
        Call("torch.autograd.grad", ([Ref("lu", (0,))], [Ref("leaf")], [Ref("g")]), {}, "grads"),
        Call("torch.Tensor.detach", (Ref("lu", (0,)),), {}, "factors"),
    )
    return Program(("x", "g"), calls, (Ref("factors"), Ref("lu", (1,)), Ref("grads")))


@pytest.mark.torture
@pytest.mark.parametrize(("wrong", "pivots"), covering([False, True], ORDERS, strength=1))
def test_gradients_follow_from_the_pivots_that_are_shown(pivots: list[int], wrong: bool) -> None:
    program, g = gradient_program(), torch.tensor([[1.0, -2.0, 3.0], [0.5, 1.0, 4.0], [2.0, 1.0, 1.0]])
    x = TIES.clone().requires_grad_()
    factors, shown = by_pivots(x, pivots)
    (grad,) = torch.autograd.grad(factors, x, g)
    given = (factors.detach(), shown, (grad + wrong,))
    found = judge(program, (TIES, g), Observed(program(TIES, g), (TIES, g)), Observed(given, (TIES, g)))
    right = bool((factors.detach().tril(-1).abs() <= 1 + 1e-6).all()) and not wrong
    assert (found.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED)) == right, found.message
