"""Tensors of the device ``meta`` hold no numbers: what a program works out with them is shapes, which a graph knows."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

X = torch.linspace(-1, 2, 4)


def shapes(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(3, 4, device="meta")
    y.add_(1)
    return x * (y @ y.t()).shape[0] + y.sum(0).shape[0]


def layers(x: torch.Tensor) -> torch.Tensor:
    with torch.device("meta"):
        layer = torch.nn.Linear(4, 2)
    return x.expand_as(torch.empty(2, 4, device="meta")) * sum(p.numel() for p in layer.parameters())


def second_derivatives(x: torch.Tensor) -> torch.Tensor:
    """PyTorch works out what forward-mode differentiation gives on ``meta``, before it computes it."""
    return torch.func.hessian(lambda t: (t**3).sum())(x)


@pytest.mark.parametrize("fn", [shapes, layers, second_derivatives])
def test_programs_may_ask_them_for_shapes(fn) -> None:
    executable = compile(fn, (X,), "linalg")
    for x in (X, X * 2 + 1):
        torch.testing.assert_close(executable(x), fn(x))


@pytest.mark.parametrize("fn", [lambda x: x.to("meta"), lambda x: torch.empty(4, device="meta") + x.sum()])
def test_none_is_a_result(fn) -> None:
    with pytest.raises(Unsupported, match="a tensor on device meta"):
        compile(fn, (X,), "linalg")
