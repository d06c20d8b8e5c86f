"""Inputs of any strides, static and with run-time sizes, to the primitives that read at places they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.transforms.builder import Builder

from .harness import evaluate, of

X, PLACES, UPDATES = torch.randn(6, 5, 7), torch.tensor([[0, 9], [3, -1]]), torch.randn(2, 2, 5, 7)
WINDOWS = {"dims": (1, 2), "kernel": (2, 3), "stride": (2, 1), "dilation": (1, 2)}
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sort": (lambda b, x: b.emit("sort", x, dim=1, descending=True), (X,)),
    "scan": (lambda b, x: b.emit("scan", x, kind="max", dim=1), (X,)),
    "gather": (lambda b, x, i: b.emit("gather", x, i, dims=(0,)), (X, PLACES)),
    "scatter": (lambda b, x, u, i: b.emit("scatter", x, u, i, dims=(0,), kind="add"), (X, UPDATES, PLACES)),
    "windows": (lambda b, x: b.emit("windows", x, **WINDOWS), (X,)),
    "pooling": (lambda b, x: (b.reduce(b.windows(x, **WINDOWS), "max", (3,)),), (X,)),
}


def every_other(x: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor of which no two elements are neighbours in memory."""
    memory = torch.empty([2 * size for size in x.shape], dtype=x.dtype)
    return memory[(slice(1, None, 2),) * x.dim()].copy_(x)


def reversed_in_memory(x: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor whose first dim is the innermost in memory."""
    order = tuple(range(x.dim()))[::-1]
    return x.permute(order).contiguous().permute(order)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_strided_inputs(name: str, dynamic: bool) -> None:
    program, tensors = PROGRAMS[name]
    types = [of(t) for t in tensors]
    if dynamic:
        types[0] = TensorType((symbol("n"), *types[0].shape[1:]), types[0].dtype)
    graph = Graph("f", [Value(t) for t in types])
    graph.outputs = program(Builder(graph.ops), *graph.args)
    kernel, want = TARGET.lower(graph).load(), evaluate(graph, tensors)
    for layout in (every_other, reversed_in_memory):
        inputs = [layout(t) for t in tensors]
        assert not inputs[0].is_contiguous()
        torch.testing.assert_close(kernel(inputs), want)
        torch.testing.assert_close(inputs, list(tensors), rtol=0, atol=0)
