"""The gradient of a determinant, whose factors PyTorch takes of the transpose of what is row-major."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from torchstone.conformance.backends import load
from torchstone.conformance.program.program import Call, Program, Ref


def gradient_of(target: str, turned: bool) -> Program:
    calls = [Call("torch.Tensor.detach", (Ref("x"),), {}, "data")]
    calls += [Call("torch.Tensor.requires_grad_", (Ref("data"),), {}, "leaf")]
    calls += [Call("torch.transpose", (Ref("leaf"), -1, -2), {}, "matrix")] if turned else []
    calls += [Call(target, (Ref("matrix" if turned else "leaf"),), {}, "y")]
    calls += [Call("torch.sum", (Ref("y"),), {}, "total")]
    calls += [Call("torch.autograd.grad", ([Ref("total")], [Ref("leaf")]), {}, "gradient")]
    return Program(("x",), tuple(calls), (Ref("gradient"),))


def by_columns(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


@pytest.mark.parametrize("target", ["torch.linalg.det", "torch.logdet"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_gradient_in_any_order(target: str, turned: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, 4, generator=draw)
    x = x @ x.mT + 0.5 * torch.randn(2, 4, 4, generator=draw)
    program = gradient_of(target, turned)
    for example, call in itertools.product((Tensor.clone, by_columns), repeat=2):
        compiled = load("linalg").compile(program, (example(x),))
        torch.testing.assert_close(compiled(call(x))[0][0], program(call(x))[0][0], rtol=1e-3, atol=1e-4)
