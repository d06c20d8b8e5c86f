"""segment_reduce and max_unpool against eager: empty segments, initial values, checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
aten: Any = torch.ops.aten
NAN = float("nan")


@pytest.mark.few(13)
@pytest.mark.filterwarnings("ignore:.*prototype:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "amin", "prod"])
@pytest.mark.parametrize("initial", [None, 0.0, 2])
def test_segments(agrees: Agrees, dtype: torch.dtype, reduce: str, initial: float | None) -> None:
    def by(axis: int = 0, unsafe: bool = False, **which: int) -> Callable[..., Any]:
        (name,) = which
        return lambda x, s: torch.segment_reduce(x, reduce, **{name: s}, axis=axis, unsafe=unsafe, initial=initial)

    x = torch.tensor([1.0, 2.0, NAN, 4.0, 5.0], dtype=dtype)
    agrees(by(lengths=1), x, torch.tensor([2, 0, 3]))
    agrees(by(lengths=1, unsafe=True), x, torch.tensor([2, 0]))
    agrees(by(lengths=1), x[:0], torch.tensor([0, 0]))
    for offsets in ([0, 2, 2, 5], [1, 2, 2, 4], [5, 5]):
        agrees(by(offsets=1), x, torch.tensor(offsets))
    batch = torch.linspace(-3, 3, 36).reshape(2, 6, 3).to(dtype)
    agrees(by(lengths=1, axis=1), batch, torch.tensor([[2, 0, 4], [3, 3, 0]]))
    agrees(by(offsets=1, axis=1), batch, torch.tensor([[0, 2, 4], [3, 3, 6]]))


def test_segments_that_do_not_fit_are_refused() -> None:
    x, lengths, offsets = torch.ones(5), torch.tensor([2, 3]), torch.tensor([0, 2, 5])
    by_lengths = compile(lambda x, s: torch.segment_reduce(x, "sum", lengths=s), (x, lengths), "evaluator")
    by_offsets = compile(lambda x, s: torch.segment_reduce(x, "sum", offsets=s), (x, offsets), "evaluator")
    for exe, bad in ((by_lengths, [2, 2]), (by_lengths, [6, -1]), (by_offsets, [0, 2, 6]), (by_offsets, [0, 3, 2])):
        with pytest.raises(RuntimeError, match=r"lengths|offsets"):
            exe(x, torch.tensor(bad))


@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unpooling(agrees: Agrees, space: int, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return aten.max_unpool2d(x, i, [4, 4]) if space == 2 else aten.max_unpool3d(x, i, [4] * 3, [2] * 3, [0] * 3)

    x = torch.randn(2, 3, *[2] * space).to(dtype)
    places = torch.stack([torch.randperm(4**space)[: 2**space] for _ in range(6)])
    places[0, 0] = places[0, 1]  # the last one stays
    indices = places.reshape(x.shape)
    agrees(program, x, indices)
    agrees(program, x[0], indices[0])
    exe = compile(program, (x, indices), "evaluator")
    for bad in (-1, 4**space):
        with pytest.raises(RuntimeError, match="outside"):
            exe(x, indices.clone().index_fill_(0, torch.tensor([1]), bad))


@pytest.mark.few(14)
@pytest.mark.filterwarnings("ignore:.*prototype:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "amin", "prod"])
@pytest.mark.parametrize("name", ["lengths", "offsets"])
def test_backward_of_segments(agrees: Agrees, dtype: torch.dtype, reduce: str, name: str) -> None:
    """Equal maxima share; elements in no segment get nothing; of a product with zeros, the others decide."""
    zeros = torch.tensor([0.0, 2.0, 3.0, NAN, 4.0, 0.0, 0.0])
    line = torch.tensor([1.0, 2.0, 2.0, NAN, 4.0, 5.0, 1.0])
    batch = torch.tensor([2.0, 2.0, 1.0]).expand(2, 6, 3)
    whole = {"lengths": [3, 0, 4], "offsets": [1, 3, 3, 6]}
    rows = {"lengths": [[2, 0, 4], [3, 3, 0]], "offsets": [[0, 2, 4], [3, 3, 6]]}
    for x, axis, given in ((line, 0, whole), (zeros, 0, whole), (zeros.flip(0), 0, whole), (batch, 1, rows)):
        x, segments = x.to(dtype), torch.tensor(given[name])
        out = torch.segment_reduce(x, reduce, **{name: segments}, axis=axis, unsafe=True)
        grad = torch.linspace(-1, 2, out.numel()).reshape(out.shape).to(dtype)
        agrees(
            lambda g, o, x, s, d=axis: aten._segment_reduce_backward(g, o, x, reduce, **{name: s}, axis=d),
            *(grad, out, x, segments),
        )


def test_unpooling_into_nothing_looks_at_no_place(agrees: Agrees) -> None:
    x, indices = torch.randn(1, 2, 2, 2), torch.full((1, 2, 2, 2), 7)
    agrees(lambda x, i: aten.max_unpool2d(x, i, [0, 4]), x, indices)
