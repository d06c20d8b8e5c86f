"""Windows are read through: alone, reduced, contracted, and under other views, static and with run-time sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, symbol
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.lowering.linalg.views import Component
from torchstone.compiler.transforms.builder import Builder

from .harness import evaluate, of, primitive, run
from .test_linalg_movement import counted, same

n, m = symbol("n"), symbol("m")
# Sizes, then dims, kernel, stride and dilation.
CASES: list[tuple[tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    ((9,), {"dims": (0,), "kernel": (3,), "stride": (1,), "dilation": (1,)}),
    ((9,), {"dims": (0,), "kernel": (3,), "stride": (4,), "dilation": (2,)}),
    ((9,), {"dims": (0,), "kernel": (9,), "stride": (1,), "dilation": (1,)}),
    ((9,), {"dims": (0,), "kernel": (1,), "stride": (2,), "dilation": (5,)}),
    ((5,), {"dims": (0,), "kernel": (4,), "stride": (4,), "dilation": (1,)}),
    ((2, 7, 8), {"dims": (1, 2), "kernel": (3, 2), "stride": (2, 3), "dilation": (1, 2)}),
    ((6, 3, 5), {"dims": (0, 2), "kernel": (2, 5), "stride": (2, 1), "dilation": (1, 1)}),
    ((0, 4), {"dims": (1,), "kernel": (2,), "stride": (1,), "dilation": (1,)}),
    ((3,), {"dims": (), "kernel": (), "stride": (), "dilation": ()}),
]
Program = Callable[..., Value]


def build(fn: Program, *types: TensorType) -> Graph:
    graph = Graph("f", [Value(t) for t in types])
    graph.outputs = (fn(Builder(graph.ops), *graph.args),)
    return graph


@pytest.mark.parametrize(("shape", "windows"), CASES)
def test_windows(shape: tuple[int, ...], windows: dict[str, Any]) -> None:
    for dtype in (dt.float32, dt.bfloat16, dt.boolean, dt.uint8, dt.int64, dt.complex64, dt.BY_NAME["float8_e5m2"]):
        x = counted(dtype, shape)
        graph = primitive("windows", of(x), **windows)
        assert same(run(graph, [x])[0], evaluate(graph, [x])[0])


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize(("shape", "windows"), CASES[:-1])
def test_a_pooling_is_one_loop_nest(shape: tuple[int, ...], windows: dict[str, Any], kind: str) -> None:
    def pool(b: Builder, x: Value) -> Value:
        out = b.windows(x, **windows)
        return b.reduce(out, kind, tuple(range(x.rank, out.rank)))

    x = counted(dt.int32, shape)
    graph = build(pool, of(x))
    assert same(run(graph, [x])[0], evaluate(graph, [x])[0])
    assert TARGET.lower(graph).texts["linalg"]().count("linalg.generic") == (0 not in shape)


def test_the_place_of_the_maximum_of_each_window() -> None:
    windows = {"dims": (1,), "kernel": (3,), "stride": (2,), "dilation": (2,)}
    x = torch.randn(4, 11)
    graph = build(lambda b, x: b.arg_reduce(b.windows(x, **windows), kind="argmax", dim=2), of(x))
    assert same(run(graph, [x])[0], evaluate(graph, [x])[0])


def convolution(b: Builder, x: Value, w: Value) -> Value:
    windows = b.windows(x, dims=(2, 3), kernel=w.shape[2:], stride=(2, 1), dilation=(1, 3))
    return b.contract(w, windows, a_batch=(), b_batch=(), a_sum=(1, 2, 3), b_sum=(1, 4, 5))


def test_a_convolution_reads_its_input_in_place() -> None:
    x, w = torch.randn(2, 3, 9, 10), torch.randn(4, 3, 3, 2)
    graph = build(convolution, of(x), of(w))
    want = torch.conv2d(x, w, stride=(2, 1), dilation=(1, 3)).transpose(0, 1)
    torch.testing.assert_close(run(graph, [x, w])[0], want)
    # The products, and their rounding from float64.
    assert TARGET.lower(graph).texts["linalg"]().count("linalg.generic") == 2


def test_a_convolution_of_run_time_sizes() -> None:
    w = torch.randn(4, 3, 3, 2)
    graph = build(convolution, TensorType((n, 3, m, m), dt.float32), of(w))
    kernel = TARGET.lower(graph).load()
    for batch, size in ((2, 9), (1, 4), (3, 12), (0, 7)):
        x = torch.randn(batch, 3, size, size)
        want = torch.conv2d(x, w, stride=(2, 1), dilation=(1, 3)).transpose(0, 1)
        torch.testing.assert_close(kernel([x, w])[0], want)


PROGRAMS: dict[str, tuple[tuple[Dim, ...], Program]] = {
    # One window leaves the last element: its only dim must not tell how long x is.
    "one window": ((5,), lambda b, x: b.reduce(b.reshape(b.windows(
        x, dims=(0,), kernel=(4,), stride=(4,), dilation=(1,)), (4,)), "sum", (0,))),
    "one window, kept": ((5,), lambda b, x: b.exp(b.reshape(b.windows(
        x, dims=(0,), kernel=(4,), stride=(4,), dilation=(1,)), (4,)))),
    "windows of windows": ((12,), lambda b, x: b.reduce(b.windows(
        b.windows(x, dims=(0,), kernel=(3,), stride=(2,), dilation=(1,)),
        dims=(0,), kernel=(2,), stride=(1,), dilation=(2,)), "sum", (1,))),
    "reversed and transposed": ((4, 9), lambda b, x: b.transpose(b.reverse(b.windows(
        b.reverse(x, dims=(1,)), dims=(1,), kernel=(3,), stride=(3,), dilation=(2,)), dims=(1, 2)), (2, 0, 1))),
    "broadcast": ((1, 9), lambda b, x: b.windows(b.broadcast(x, (4, 9), (0, 1)),
        dims=(0, 1), kernel=(2, 2), stride=(1, 2), dilation=(3, 1))),
    "places": ((9,), lambda b, x: b.windows(b.iota(size=11, dtype=dt.float32),
        dims=(0,), kernel=(3,), stride=(2,), dilation=(1,))),
    "run-time size": ((n,), lambda b, x: b.reduce(b.windows(
        b.exp(x), dims=(0,), kernel=(4,), stride=(3,), dilation=(1,)), "sum", (1,))),
    "run-time size, reversed": ((n, m), lambda b, x: b.reverse(b.windows(
        x, dims=(0, 1), kernel=(2, 3), stride=(1, 2), dilation=(2, 1)), dims=(0, 3))),
    "gathered": ((n, 3), lambda b, x: b.reduce(b.windows(
        b.gather(x, b.iota(size=8, dtype=dt.int64), dims=(0,)),
        dims=(0,), kernel=(2,), stride=(2,), dilation=(1,)), "sum", (2,))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_among_other_views(name: str) -> None:
    shape, program = PROGRAMS[name]
    graph = build(program, TensorType(shape, dt.float32))
    kernel = TARGET.lower(graph).load()
    for size in (5, 7, 16):
        x = torch.randn([d if isinstance(d, int) else size for d in shape])
        torch.testing.assert_close(kernel([x]), evaluate(graph, [x]))


@pytest.mark.parametrize(("stride", "nests"), [(1, 3), (3, 2)])
def test_what_windows_share_is_computed_once(stride: int, nests: int) -> None:
    def program(b: Builder, x: Value) -> Value:
        windows = b.windows(b.exp(x), dims=(0,), kernel=(3,), stride=(stride,), dilation=(1,))
        return b.reduce(windows, "sum", (1,))

    # The sum and its rounding; exp has a nest of its own where windows overlap.
    text = TARGET.lower(build(program, TensorType((12,), dt.float32))).texts["linalg"]()
    assert text.count("linalg.generic") == nests


def test_components() -> None:
    row, column = Component(((0, 1),)), Component(((1, 2),), 3)
    assert (row + column) * 2 + 1 == Component(((0, 2), (1, 4)), 7)
    assert row + row * -1 == Component() and (row.loop, column.loop, (row + 1).loop) == (0, None, None)
