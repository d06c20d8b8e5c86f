"""Gradients of padding by elements of the tensor, against eager's, of known and of run-time sizes."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

import torchstone
from torchstone.compiler.diagnostics import GuardError

PADS = [(1, 2), (0, 3), (-1, 2), (2, -1), (-1, -2), (1, 2, 0, 1), (-1, 2, 2, -1), (1, 0, 2, 1, 1, 1)]


def gradient(mode: str, pad: tuple[int, ...], shape: tuple[int, ...], free: bool) -> None:
    op = getattr(torch.ops.aten, f"{'reflection' if mode == 'reflect' else 'replication'}_pad{len(pad) // 2}d_backward")

    def fn(x: torch.Tensor) -> torch.Tensor:
        return op(F.pad(x, pad, mode=mode).cos(), x, pad)

    sizes = (torch.randn(tuple(n + 1 for n in shape)), torch.randn(shape)) if free else (torch.randn(shape),)
    shapes = (dict.fromkeys(range(len(shape)), Dim.AUTO),) if free else None
    executable = torchstone.compile(fn, sizes[:1], "evaluator", dynamic_shapes=shapes)
    for x in sizes:
        torch.testing.assert_close(executable(x), fn(x))


@pytest.mark.few(5)
@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_gradients(mode: str, pad: tuple[int, ...]) -> None:
    shape = (2, 3, 6, 5, 4)[: 2 + len(pad) // 2]
    gradient(mode, pad, shape, free=False)
    gradient(mode, pad, shape, free=True)


@pytest.mark.parametrize("pad", [(2, -6), (-6, 2), (3, -7), (-5, 1), (2, -6, -4, 3)])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_what_is_cut_off_reaches_into_the_other_sides_padding(mode: str, pad: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5)[-1 - len(pad) // 2 :]
    gradient(mode, pad, shape, free=False)
    x = torch.randn(shape)
    for target in ("evaluator", "linalg"):
        executable = torchstone.compile(lambda x: F.pad(x, pad, mode=mode), (x,), target)
        assert torch.equal(executable(x), F.pad(x, pad, mode=mode))


def test_of_one_element() -> None:
    gradient("replicate", (2, 3), (2, 3, 1), free=False)


def test_infinities_stay_where_they_are() -> None:
    grad = torch.tensor([[[1.0, torch.inf, 2.0, 3.0, torch.nan, 4.0]]])
    for op in (torch.ops.aten.reflection_pad1d_backward, torch.ops.aten.replication_pad1d_backward):
        args = (grad, torch.zeros(1, 1, 4), [1, 1])
        got = torchstone.compile(lambda g, x, op=op: op(g, x, [1, 1]), args[:2], "linalg")(*args[:2])
        torch.testing.assert_close(got, op(*args), equal_nan=True)


def test_a_gradient_of_another_size_raises() -> None:
    def fn(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.replication_pad1d_backward(grad, x, [1, 2])

    shapes = ({2: Dim.AUTO}, {2: Dim.AUTO})
    free = torchstone.compile(fn, (torch.randn(2, 3, 8), torch.randn(2, 3, 5)), "evaluator", dynamic_shapes=shapes)
    with pytest.raises(GuardError, match="must"):
        free(torch.randn(2, 3, 9), torch.randn(2, 3, 5))
