"""Embedding tables and bags against eager: empty bags, padding, NaN, offsets that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
aten: Any = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SUM, MEAN, MAX = 0, 1, 2
INDICES = torch.tensor([1, 2, 3, 0, 1, 1, 4])


def _bag(mode: int, last: bool = False, padding: int = -1, training: bool = False) -> Callable[..., Any]:
    op = aten._embedding_bag if training else aten._embedding_bag_forward_only

    def program(table: Any, indices: Any, offsets: Any, weights: Any = None) -> Any:
        out = op(table, indices, offsets, False, mode, False, weights, last, padding)
        return out if training else out[0]

    return program


@pytest.mark.parametrize(
    ("dtype", "index", "last", "padding", "training"),
    covering(
        [torch.float32, torch.float64, torch.float16, torch.bfloat16],
        [torch.int64, torch.int32],
        [False, True],
        [-1, 1],
        [False, True],
    ),
)
def test_bags(agrees: Agrees, dtype: torch.dtype, index: torch.dtype, last: bool, padding: int, training: bool) -> None:
    torch.manual_seed(0)
    table, weights = torch.randn(5, 3).to(dtype), torch.randn(7).to(dtype)
    offsets = torch.tensor([0, 2, 2, 7] if last else [0, 2, 2, 5, 7, 7], dtype=index)
    for mode in (SUM, MEAN, MAX):
        agrees(_bag(mode, last, padding, training), table, INDICES.to(index), offsets)
    agrees(_bag(SUM, last, padding, training), table, INDICES.to(index), offsets, weights)


@pytest.mark.parametrize("offsets", [[0], [0, 2], [0, 0, 3], [0, 4, 4]])
@pytest.mark.parametrize("indices", [[0, 1, 2, 3], [2, 2, 1, 0], [3, 1, 3, 1]])
@pytest.mark.parametrize("padding", [-1, 2])
def test_the_largest_of_a_bag_is_its_first_element_or_one_above_it(
    agrees: Agrees, offsets: list[int], indices: list[int], padding: int
) -> None:
    """So a NaN counts only where it is first, and of equals the first is the place."""
    table = torch.tensor([[1.0, NAN, -INF], [5.0, 2.0, NAN], [NAN, 7.0, -INF], [5.0, 8.0, -INF]])
    agrees(_bag(MAX, False, padding, True), table, torch.tensor(indices), torch.tensor(offsets))


@pytest.mark.parametrize("offsets", [[1, 3], [0, 5, 2], [0, 9]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    args = torch.randn(5, 3), INDICES, torch.tensor([0, *sorted(range(1, len(offsets)))])
    exe = compile(_bag(MEAN), args, "evaluator")
    with pytest.raises(RuntimeError, match="offset"):
        exe(*args[:2], torch.tensor(offsets))
    with pytest.raises(RuntimeError, match="index"):
        exe(args[0], INDICES + 1, args[2])


def test_tables(agrees: Agrees) -> None:
    table = torch.randn(5, 3)
    agrees(lambda t, i: torch.embedding(t, i.reshape(7, 1)), table, INDICES.int())
    for order in (0.0, 1.0, 2.0, 3.0, INF):
        agrees(lambda t, i, p=order: aten.embedding_renorm(t, i, 0.7, p), table, INDICES[:3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_drops_padding_and_what_is_out_of_range(agrees: Agrees, dtype: torch.dtype) -> None:
    grad = torch.randn(7, 3).to(dtype)
    for rows, padding, by_frequency in ((5, 1, False), (5, -1, True), (4, -1, False), (5, 4, True)):
        args = rows, padding, by_frequency
        agrees(lambda g, i, a=args: aten.embedding_dense_backward(g, i, *a), grad, INDICES)
    agrees(lambda g, i: aten.embedding_dense_backward(g, i, 5, -1, False), grad[:0], INDICES[:0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
@pytest.mark.parametrize("padding", [-1, 1])
def test_backward_of_bags(agrees: Agrees, dtype: torch.dtype, mode: int, padding: int) -> None:
    torch.manual_seed(0)
    table, offsets, weights = torch.randn(5, 3).to(dtype), torch.tensor([0, 2, 2, 5, 7, 7]), torch.randn(7).to(dtype)
    _, bag, sizes, largest = aten._embedding_bag(table, INDICES, offsets, False, mode, False, None, False, padding)
    grad = torch.randn(6, 3).to(dtype)

    def of_table(g: Any, i: Any, o: Any, bag: Any, sizes: Any, largest: Any, w: Any = None) -> Any:
        return aten._embedding_bag_backward(g, i, o, bag, sizes, largest, 5, False, mode, False, w, padding)

    def of_weights(g: Any, t: Any, i: Any, o: Any, bag: Any) -> Any:
        return aten._embedding_bag_per_sample_weights_backward(g, t, i, o, bag, SUM, padding)

    args = grad, INDICES, offsets, bag, sizes, largest
    agrees(of_table, *args)
    if mode == SUM:
        agrees(of_table, *args, weights)
        agrees(of_weights, grad, table, INDICES, offsets, bag)
