"""Windows, scans and gathers for targets that have none, or only a simple form: the same values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.compiler.flat import graph, legalized, primitive, run, special
from tests.sampling import covering
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand

WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((9,), {"dims": (0,), "kernel": (3,), "stride": (2,), "dilation": (2,)}),
    ((2, 7, 8), {"dims": (1, 2), "kernel": (3, 2), "stride": (2, 3), "dilation": (1, 2)}),
    ((5, 4), {"dims": (0,), "kernel": (5,), "stride": (7,), "dilation": (1,)}),
    ((5, 4), {"dims": (1,), "kernel": (1,), "stride": (3,), "dilation": (9,)}),
    ((0, 4), {"dims": (1,), "kernel": (2,), "stride": (1,), "dilation": (1,)}),
    ((3,), {"dims": (), "kernel": (), "stride": (), "dilation": ()}),
]


def check(program: Graph, *xs: torch.Tensor, missing: str, targets: bool = True) -> None:
    """Require equal values of the legalized program: by the evaluators, on TOSA and on TensorRT's simulator."""
    want = evaluate_graph(program, xs)
    got = [legalized(program, xs, missing)]
    if targets:
        got += [run(find_target(name), program, xs) for name in ("tosa", "tensorrt")]
    for results in got:
        torch.testing.assert_close(results, want, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize(("shape", "windows"), WINDOWS)
def test_windows(shape: tuple[int, ...], windows: dict[str, Any], dtype: torch.dtype) -> None:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    check(primitive("windows", x, **windows), x, missing="windows", targets=not dtype.is_complex)


def test_windows_of_run_time_sizes() -> None:
    windows = {"dims": (1,), "kernel": (3,), "stride": (1,), "dilation": (2,)}
    x = torch.randn(2, 9)
    static = primitive("windows", x, **windows)
    n = symbol("n")
    dynamic = primitive("windows", x, **windows)
    dynamic.args[0].type = TensorType((n, n + 7), dt.float32)
    dynamic.outputs[0].type = TensorType((n, n + 3, 3), dt.float32)
    assert torch.equal(legalized(dynamic, (x,), "windows")[0], evaluate_graph(static, (x,))[0])


def test_windows_of_too_many_places_are_refused() -> None:
    x = torch.zeros(300)
    made = primitive("windows", x, dims=(0,), kernel=(257,), stride=(1,), dilation=(1,))
    with pytest.raises(Unsupported, match="windows of 257 elements along one dim, more than 256"):
        expand(made, find_target("tosa").takes)


VOLUME: dict[str, Any] = {"dims": (2, 3, 4), "kernel": (2, 3, 2), "stride": (1, 2, 3), "dilation": (2, 1, 1)}


def convolution(b: Builder, w: Value, x: Value) -> Value:
    return b.contract(w, b.windows(x, **VOLUME), a_batch=(), b_batch=(), a_sum=(1, 2, 3, 4), b_sum=(1, 5, 6, 7))


def grouped(b: Builder, x: Value, w: Value) -> Value:
    windows = b.windows(b.reshape(x, (2, 3, 1, 30, 7)), dims=(3, 4), kernel=(2, 3), stride=(2, 1), dilation=(1, 2))
    return b.contract(windows, w, a_batch=(1, 2), b_batch=(1, 0), a_sum=(5, 6), b_sum=(3, 2))


def pooling(kind: str) -> Any:
    return lambda b, x, w: b.reduce(b.windows(x, **VOLUME), kind, (5, 6, 7))


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "program",
    [
        lambda b, x, w: convolution(b, w, x),
        lambda b, x, w: grouped(b, x, b.reshape(w, (1, 3, 3, 2, 8))),
        *(pooling(kind) for kind in ("sum", "prod", "max", "min")),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_windows_of_more_dims_than_a_target_holds(program: Any, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-3, 4, s, generator=generator).to(dtype) for s in ((2, 3, 5, 6, 7), (4, 3, 2, 3, 2)))
    made = graph(program, x, w)
    want = evaluate_graph(made, (x, w))
    torch.testing.assert_close(run(find_target("tosa"), made, (x, w)), want)


def test_windows_that_are_not_combined_are_refused_for_their_dims() -> None:
    def both(b: Builder, x: Value) -> tuple[Value, ...]:
        windows = b.windows(x, **VOLUME)
        return windows, b.reduce(windows, "sum", (5, 6, 7))

    for program in (lambda b, x: b.neg(b.windows(x, **VOLUME)), lambda b, x: b.windows(x, **VOLUME), both):
        made = graph(program, torch.zeros(2, 3, 5, 6, 7))
        with pytest.raises(Unsupported, match="at most 6 dims"):
            expand(made, find_target("tosa").takes)


GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((5, 4), (3,), (0,)), ((5,), (), (0,)), ((5, 4, 6), (2, 3), (0, 2)), ((5, 4, 6), (7,), (1,)),
    ((5, 4, 6), (), (0, 1, 2)), ((3, 4), (0, 2), (1,)), ((3, 0), (2,), (0,)), ((0, 3), (2, 0), (0,)),
]  # fmt: skip


@pytest.mark.few(37)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool], ids=str
)
@pytest.mark.parametrize(("shape", "index", "dims"), GATHERS)
def test_gather(shape: tuple[int, ...], index: tuple[int, ...], dims: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.arange(torch.Size(shape).numel()).reshape(shape) % 7 - 3 * dtype.is_signed).to(dtype)
    generator = torch.Generator().manual_seed(0)
    at = [torch.randint(-2, shape[d] + 2, index, generator=generator) for d in dims]
    for place in at:
        place.view(-1)[:2] = torch.tensor([2**63 - 1, -(2**63)])[: place.numel()]
    program = primitive("gather", x, *at, dims=dims)
    (want,) = evaluate_graph(program, (x, *at))
    for name in ("tosa", "tensorrt") if dtype is not torch.uint8 else ("tosa",):
        assert torch.equal(run(find_target(name), program, (x, *at))[0], want), name


ROWS = [((7,), 0), ((1,), 0), ((3, 8, 2), 1), ((4, 5), 0), ((0, 3), 1), ((3, 0), 1)]


@pytest.mark.parametrize(("place", "kind"), covering(GATHERS, ["set", "add", "mul", "max", "min"], strength=1))
def test_scatter(place: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    shape, index, dims = place
    generator = torch.Generator().manual_seed(1)
    at = [torch.randint(-2, shape[d] + 2, index, generator=generator) for d in dims]
    rest = (*index, *(s for d, s in enumerate(shape) if d not in dims))
    for dtype in (torch.float32, torch.int32, torch.int64, torch.bool):
        if dtype is torch.bool and kind != "set":
            continue
        x, updates = (torch.randint(-3, 4, s, generator=generator).to(dtype) for s in (shape, rest))
        if dtype is torch.float32 and updates.numel() > 1:
            # What is not added must not be multiplied by zero.
            updates.view(-1)[:2] = torch.tensor([math.inf, math.nan])
        check(primitive("scatter", x, updates, *at, dims=dims, kind=kind), x, updates, *at, missing="scatter")


@pytest.mark.parametrize("kind", ["set", "add", "mul", "max", "min"])
def test_what_no_update_is_for_stays_to_the_bit(kind: str) -> None:
    x = special(torch.float32)
    at, updates = torch.tensor([2, -1, 2]), torch.tensor([3.0, 5.0, 0.5])
    program = primitive("scatter", x, updates, at, dims=(0,), kind=kind)
    (want,) = evaluate_graph(program, (x, updates, at))
    for name in ("tosa", "tensorrt"):
        (got,) = run(find_target(name), program, (x, updates, at))
        assert torch.equal(got.view(torch.int32), want.view(torch.int32)), name


@pytest.mark.few(5)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dim"), ROWS)
def test_sort(shape: tuple[int, ...], dim: int, descending: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    for dtype in (torch.float32, torch.int32, torch.int64, torch.bool):
        x = torch.randint(-3, 4, shape, generator=generator).to(dtype)
        check(primitive("sort", x, dim=dim, descending=descending), x, missing="sort")


@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_special_values(descending: bool) -> None:
    values = special(torch.float32)
    x = torch.stack([values.roll(7 * shift) for shift in range(4)])
    check(primitive("sort", x, dim=1, descending=descending), x, missing="sort")


def test_what_takes_too_many_comparisons_is_refused() -> None:
    x, at = torch.zeros(3000), torch.zeros(3000, dtype=torch.int64)
    scatter = primitive("scatter", x, x, at, dims=(0,), kind="set")
    for program in (primitive("sort", x, dim=0, descending=False), scatter):
        with pytest.raises(Unsupported, match="9000000 pairs"):
            expand(program, find_target("tosa").takes)


@pytest.mark.few(17)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("shape", "dim"), ROWS)
def test_scan(shape: tuple[int, ...], dim: int, kind: str) -> None:
    for dtype in (torch.float32, torch.int32, torch.int64, torch.int8, torch.uint8, torch.float16, torch.complex64):
        if dtype.is_complex and kind in ("max", "min"):
            continue
        x = (torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 - 2).to(dtype)
        check(primitive("scan", x, kind=kind, dim=dim), x, missing="scan",
              targets=dtype in (torch.float32, torch.int32))  # fmt: skip


@pytest.mark.parametrize("kind", ["max", "min"])
def test_a_nan_stays_in_a_scan(kind: str) -> None:
    values = special(torch.float32)
    x = torch.stack([values.roll(shift) for shift in range(len(values))])
    check(primitive("scan", x, kind=kind, dim=1), x, missing="scan")


def test_scans_of_run_time_length_are_refused() -> None:
    made = Graph("f", [Value(TensorType((symbol("n"),), dt.float32))])
    made.outputs = Builder(made.ops).emit("scan", *made.args, kind="sum", dim=0)
    with pytest.raises(Unsupported, match="TOSA has no scan"):
        expand(made, find_target("tosa").takes)
