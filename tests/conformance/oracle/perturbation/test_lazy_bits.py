"""Runs of the oracle take a lazily conjugated or negated operand for what it is.

PyTorch hands some ops, such as products of matrices, operands with these bits, and leaves the bits out of what a mode
computes with them in its dispatch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref

A, B, L = Ref("a"), Ref("b"), Ref("lazy")
CONJUGATED = Call("torch.Tensor.conj", (A,), {}, "lazy")
CALLS = {
    "mm": ("torch.matmul", (L, B)),
    "mm, the second": ("torch.matmul", (B, L)),
    "addmm": ("torch.addmm", (L, L, B)),
    "bmm": ("torch.einsum", ("ij,kj->ik", L, L)),
    "mv": ("torch.linalg.multi_dot", ([L, B, L],)),
    "vecdot": ("torch.linalg.vecdot", (L, B)),
    "solve": ("torch.linalg.solve", (B, L)),
    "inv": ("torch.linalg.inv", (L,)),
}


def operands(dtype: torch.dtype = torch.complex64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(4, 4, dtype=dtype, generator=generator) for _ in range(2))
    return a, b + 4 * torch.eye(4)


def strays(program: Program) -> float:
    """How far the runs that move or reorder numbers are from float64, at most."""
    referee = Referee(program, operands())
    truth = referee.float64.leaves[0]
    runs = [*referee.rounded_runs, *referee.ulp_perturbed, *referee.reordered_runs, *referee.flushed_runs]
    assert len(runs) > 8
    return max(float((run.leaves[0] - truth).abs().max()) for run in runs)


@pytest.mark.parametrize("name", CALLS)
def test_a_run_strays_as_far_as_it_rounds(name: str) -> None:
    target, args = CALLS[name]
    assert strays(Program(("a", "b"), (CONJUGATED, Call(target, args, {}, "r")), Ref("r"))) < 1e-3


def test_gradients_which_conjugate() -> None:
    leaf = Call("torch.Tensor.requires_grad_", (Ref("d"),), {}, "leaf")
    calls = (
        Call("torch.Tensor.detach", (A,), {}, "d"), leaf, Call("torch.matmul", (Ref("leaf"), B), {}, "y"),
        Call("torch.autograd.grad", ([Ref("y")], [Ref("leaf")], [B]), {}, "g"),
    )  # fmt: skip
    assert strays(Program(("a", "b"), calls, Ref("g"))) < 1e-3


@pytest.mark.parametrize("lazily", [torch.conj, torch._neg_view])
def test_a_mode_computes_with_what_it_is_given(lazily: Any) -> None:
    class AddNothing(ComputingMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            moved = [arg + 0 if isinstance(arg, torch.Tensor) else arg for arg in args]
            return func(*moved, **(kwargs or {}))

    a, b = operands()
    with AddNothing():
        found = torch.matmul(lazily(a), b)
    torch.testing.assert_close(found, torch.matmul(lazily(a), b))
