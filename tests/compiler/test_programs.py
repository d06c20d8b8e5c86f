"""Programs as users write them, each compared with eager: at the sizes it was compiled for, and dynamic at others."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile

AUTO = torch.export.Dim.AUTO


def losses(x, t):
    log = x.log_softmax(1)
    return [F.nll_loss(log, t, reduction=r) for r in ("none", "sum", "mean")], F.nll_loss(log, t, ignore_index=1)


def labels(n: int) -> torch.Tensor:
    return torch.arange(n) * 7 % 4


def circular(x):
    return F.pad(x, (2, 0, 1, 1), "circular")


def grouped_queries(q, kv):
    return F.scaled_dot_product_attention(q, kv, kv * 2, is_causal=True, enable_gqa=True)


def grouped_queries_gradients(q, kv):
    q, kv = q.detach().requires_grad_(), kv.detach().requires_grad_()
    out = F.scaled_dot_product_attention(q, kv, kv * 2, enable_gqa=True)
    return torch.autograd.grad(out.square().sum(), (q, kv))


def lists_of_tensors(xs, ys):
    torch._foreach_add_(xs, ys, alpha=2)
    return torch._foreach_mul(xs, 0.5), torch._foreach_norm(ys), torch._foreach_addcdiv(xs, ys, [y + 2 for y in ys])


# A program, and its arguments at a size.
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "losses": (losses, lambda n: (torch.randn(n, 4), labels(n))),
    "grouped queries": (grouped_queries, lambda n: (torch.randn(2, 4, n, 4), torch.randn(2, 2, n, 4))),
    "lists of tensors": (
        lists_of_tensors,
        lambda n: ([torch.rand(n), torch.rand(2, 3)], [torch.rand(n), torch.rand(3)]),
    ),
    "circular padding": (circular, lambda n: (torch.randn(1, 2, n, 5),)),
}


def check(exe: Callable[..., Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Compare results, and what is left in the arguments."""
    mine, theirs = (pytree.tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, args) for _ in "ab")
    got, expected = exe(*mine), fn(*theirs)
    torch.testing.assert_close(got, expected, equal_nan=True)
    torch.testing.assert_close(mine, theirs, equal_nan=True)


def dynamic(make: Callable[[int], tuple[Any, ...]]) -> Any:
    """Return the dynamic shapes that say which sizes go with n."""

    def axes(one: Any, other: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return AUTO if type(one) is int and one != other else None
        return {i: AUTO for i, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b} or None

    return pytree.tree_map(axes, make(6), make(8))


# What torch.export does not take, or no dynamic size makes a difference to.
STATIC: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "gradients of grouped queries": (
        grouped_queries_gradients,
        lambda n: (torch.randn(2, 4, n, 4), torch.randn(2, 2, n, 4)),
    ),
}


@pytest.mark.parametrize("name", [*PROGRAMS, *STATIC])
def test_static(name: str) -> None:
    fn, make = {**PROGRAMS, **STATIC}[name]
    torch.manual_seed(0)
    args = make(6)
    for target in ("evaluator", "linalg"):
        check(compile(fn, args, target), fn, args)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic(name: str) -> None:
    fn, make = PROGRAMS[name]
    torch.manual_seed(0)
    exe = compile(fn, make(6), "evaluator", dynamic(make))
    for n in (6, 9, 4):
        check(exe, fn, make(n))
    for n in (2, 1):
        with suppress(GuardError):  # PyTorch may trace a small size in a way of its own; it is refused then
            check(exe, fn, make(n))
