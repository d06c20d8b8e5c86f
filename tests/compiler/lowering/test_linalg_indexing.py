"""Gather and scatter on every dtype and with run-time sizes, against their evaluators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate as evaluate_dim
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.lowering.linalg.scalars import is_float8
from torchstone.compiler.ops.indexing import SCATTER_KINDS
from torchstone.compiler.runtime.cpu.bridge import torch_dtype
from torchstone.compiler.transforms.builder import Builder

from .harness import evaluate, of, primitive, run, special
from .test_linalg_movement import counted, same

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

# Eager combines no two of these.
NO_ARITHMETIC = ("uint16", "uint32", "uint64", "complex32")
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


@pytest.mark.few(8)
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


def rest(x: tuple, index: tuple, dims: tuple[int, ...]) -> tuple:
    """Return the shape of a gather's result, which is that of a scatter's updates."""
    return (*index, *(size for d, size in enumerate(x) if d not in dims))


@pytest.mark.few(7)
@pytest.mark.parametrize(("place", "kind"), covering(PLACES, [*SCATTER_KINDS], strength=1))
def test_scatter(place: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    shape, index, dims = place
    at = indices(shape, index, dims)
    updates = rest(shape, index, dims)
    for dtype in dt.DTYPES:
        types = [TensorType(shape, dtype), TensorType(updates, dtype), *[TensorType(index, dt.int64)] * len(dims)]
        try:
            graph = primitive("scatter", *types, dims=dims, kind=kind)
        except VerifyError:
            continue  # the primitive is not defined for this dtype
        if TARGET.takes(graph.ops[0]):
            assert kind != "set" and is_float8(dtype)
            continue
        tensors = [counted(dtype, shape), counted(dtype, updates), *at]
        try:
            (want,) = evaluate(graph, tensors)
        except NotImplementedError:
            assert dtype.name in NO_ARITHMETIC or is_float8(dtype)
            continue
        (got,) = run(graph, tensors)
        assert same(got, want), f"{dtype}: {got}, expected {want}"


@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.int8, dt.uint8], ids=str)
def test_scatter_combines_special_values(dtype: DType, kind: str) -> None:
    values = special(dtype)
    x, updates = values.repeat(len(values)), values.repeat_interleave(len(values))
    at = torch.arange(len(x))
    graph = primitive("scatter", of(x), of(updates), of(at), dims=(0,), kind=kind)
    torch.testing.assert_close(run(graph, [x, updates, at]), evaluate(graph, [x, updates, at]), rtol=0, atol=0,
                               equal_nan=True)  # fmt: skip


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
def test_scatter_rounds_at_each_step(dtype: DType) -> None:
    x = torch.full((1,), 2048.0, dtype=torch_dtype(dtype))
    updates, at = torch.ones(64, dtype=x.dtype), torch.zeros(64, dtype=torch.int64)
    graph = primitive("scatter", of(x), of(updates), of(at), dims=(0,), kind="add")
    assert run(graph, [x, updates, at])[0].item() == 2048


@pytest.mark.parametrize(("shape", "index", "dims"), DYNAMIC)
def test_scatter_of_run_time_sizes(shape: tuple, index: tuple, dims: tuple[int, ...]) -> None:
    shapes = (shape, rest(shape, index, dims))
    types = [*(TensorType(s, dt.float32) for s in shapes), *[TensorType(index, dt.int64)] * len(dims)]
    graph = with_sizes(primitive("scatter", *types, dims=dims, kind="add"))
    kernel = TARGET.lower(graph).load()
    for sizes in ({"n": 5, "m": 6}, {"n": 1, "m": 1}, {"n": 3, "m": 0}, {"n": 0, "m": 2}):
        x, updates, at = (tuple(evaluate_dim(d, sizes) for d in t) for t in (*shapes, index))
        tensors = [counted(dt.float32, x), counted(dt.float32, updates), *indices(x, at, dims)]
        tensors.append(torch.empty(sizes["n"], sizes["m"]))
        before = tensors[0].clone()
        assert same(kernel(tensors)[0], evaluate(graph, tensors)[0]), sizes
        assert same(tensors[0], before)


def test_scatter_leaves_what_it_writes_over_to_others() -> None:
    # x is computed, and used again after the scatter, and by the updates.
    def program(b: Builder, x: Value, i: Value) -> Value:
        y = b.exp(x)
        updates = b.add(y, y)
        return b.add(y, b.scatter(y, b.reverse(updates, dims=(0,)), i, dims=(0,), kind="add"))

    graph = build(program, TensorType((5, 2), dt.float32), TensorType((5,), dt.int64))
    tensors = [torch.randn(5, 2), torch.tensor([3, 3, 0, -1, 1])]
    torch.testing.assert_close(run(graph, tensors), evaluate(graph, tensors))


def test_scatter_computes_its_operands_as_it_goes() -> None:
    def program(b: Builder, x: Value, i: Value) -> Value:
        updates = b.broadcast(b.scalar(2.0, dt.float32), (7, 6), ())
        return b.scatter(x, updates, b.rem(i, b.full_like(i, 4)), dims=(0,), kind="set")

    graph = build(program, TensorType((4, 6), dt.float32), TensorType((7,), dt.int64))
    assert TARGET.lower(graph).texts["linalg"]().count("linalg.generic") == 1  # the copy of x
    tensors = [torch.randn(4, 6), torch.randint(-8, 8, (7,))]
    assert same(run(graph, tensors)[0], evaluate(graph, tensors)[0])


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
