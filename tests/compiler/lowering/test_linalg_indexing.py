"""Gather and scatter on every dtype and with run-time sizes, against their evaluators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler.contract.builder import Builder
from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate as evaluate_dim
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET

from .harness import evaluate, primitive, run
from .test_linalg_movement import counted, same

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

n, m = symbol("n"), symbol("m")
# Sizes of x, the shape of the index tensors, the dims they are for.
PLACES: list[tuple[tuple, tuple, tuple[int, ...]]] = [
    ((5,), (3,), (0,)),
    ((5,), (), (0,)),
    ((5, 4, 6), (2, 3), (0, 2)),
    ((5, 4, 6), (7,), (1,)),
    ((5, 4, 6), (), (0, 1, 2)),
    ((1, 4), (3, 1), (0, 1)),
    ((3, 4), (0, 2), (1,)),
    ((3, 0), (2,), (0,)),
    ((0, 3), (2, 0), (0,)),
]
DYNAMIC: list[tuple[tuple, tuple, tuple[int, ...]]] = [
    ((n, 4), (m,), (0,)),
    ((n, m), (3,), (1,)),
    ((4, n, 3), (m, 2), (0, 1)),
    ((n,), (), (0,)),
]


def places(shape: tuple[int, ...], size: int, seed: int) -> torch.Tensor:
    """Return indices into a dim of that size: some below it, some above, the farthest among them, some twice."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.randint(-2, size + 2, shape, generator=generator)
    if out.numel() > 2:
        out.view(-1)[:2] = torch.tensor([2**63 - 1, -(2**63)])
    return out


def indices(x: tuple[int, ...], shape: tuple[int, ...], dims: tuple[int, ...]) -> list[torch.Tensor]:
    return [places(shape, x[d], d) for d in dims]


@pytest.mark.parametrize(("shape", "index", "dims"), PLACES)
def test_gather(shape: tuple[int, ...], index: tuple[int, ...], dims: tuple[int, ...]) -> None:
    at = indices(shape, index, dims)
    for dtype in dt.DTYPES:
        graph = primitive("gather", TensorType(shape, dtype), *[TensorType(index, dt.int64)] * len(dims), dims=dims)
        tensors = [counted(dtype, shape), *at]
        (got,), (want,) = run(graph, tensors), evaluate(graph, tensors)
        assert same(got, want), f"{dtype}: {got}, expected {want}"


def with_sizes(graph: Graph) -> Graph:
    """Return the graph with one more argument, which gives n and m."""
    graph.args.append(Value(TensorType((n, m), dt.float32)))
    return graph


@pytest.mark.parametrize(("shape", "index", "dims"), DYNAMIC)
def test_gather_of_run_time_sizes(shape: tuple, index: tuple, dims: tuple[int, ...]) -> None:
    types = [TensorType(shape, dt.float32), *[TensorType(index, dt.int64)] * len(dims)]
    graph = with_sizes(primitive("gather", *types, dims=dims))
    kernel = TARGET.lower(graph).load()
    for sizes in ({"n": 5, "m": 6}, {"n": 1, "m": 1}, {"n": 3, "m": 0}):
        x, at = (tuple(evaluate_dim(d, sizes) for d in t) for t in (shape, index))
        if 0 in x and 0 not in at:
            continue
        tensors = [counted(dt.float32, x), *indices(x, at, dims), torch.empty(sizes["n"], sizes["m"])]
        assert same(kernel(tensors)[0], evaluate(graph, tensors)[0]), sizes


def test_gather_from_nothing_fails_at_run_time() -> None:
    graph = primitive("gather", TensorType((n,), dt.float32), TensorType((m,), dt.int64), dims=(0,))
    kernel = TARGET.lower(graph).load()
    assert kernel([torch.empty(0), torch.empty(0, dtype=torch.int64)])[0].shape == (0,)
    with pytest.raises(RuntimeError, match="nothing to read in f32"):
        kernel([torch.empty(0), torch.zeros(2, dtype=torch.int64)])


def build(fn: Any, *types: TensorType) -> Graph:
    graph = Graph("f", [Value(t) for t in types])
    graph.outputs = (fn(Builder(graph.ops), *graph.args),)
    return graph


def test_gather_is_computed_in_the_loops_that_use_it() -> None:
    def program(b: Builder, x: Value, i: Value) -> Value:
        rows = b.gather(b.exp(x), b.neg(i), dims=(1,))
        return b.reduce(b.mul(b.transpose(rows, (1, 0)), b.transpose(rows, (1, 0))), "sum", (1,))

    graph = build(program, TensorType((4, 6), dt.float64), TensorType((9,), dt.int64))
    # exp, the accumulators, the sum with all the rest, and its end: no loop nest for the gather.
    assert TARGET.lower(graph).texts["linalg"]().count("linalg.generic") == 3
    tensors = [torch.randn(4, 6, dtype=torch.float64), torch.randint(-8, 2, (9,))]
    torch.testing.assert_close(run(graph, tensors), evaluate(graph, tensors))
