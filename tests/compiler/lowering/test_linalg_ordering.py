"""Scan and sort on every dtype, over special values and with run-time sizes, against their evaluators."""

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
from torchstone.compiler.ops.ordering import SCAN_KINDS
from torchstone.compiler.runtime.cpu.bridge import torch_dtype
from torchstone.compiler.transforms.builder import Builder

from .harness import evaluate, of, primitive, run, special
from .test_linalg_movement import counted

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

n, m = symbol("n"), symbol("m")
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((6,), 0), ((1,), 0), ((0,), 0), ((3, 4, 5), 0), ((3, 4, 5), 1), ((3, 4, 5), 2), ((3, 0), 0), ((1, 7), 1),
]  # fmt: skip
# Eager has no evaluator for these.
ABSENT = ("uint16", "uint32", "uint64", "complex32", *(d.name for d in dt.DTYPES if d.is_float and d.bits == 8))


def equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Say whether values are the same, NaN equal to NaN, zeros of one sign."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.is_complex():
        return equal(got.real, want.real) and equal(got.imag, want.imag)
    if not got.is_floating_point():
        return torch.equal(got, want)
    wide_got, wide_want = got.double(), want.double()
    nan = wide_got.isnan()
    signs = torch.equal(wide_got.signbit() | nan, wide_want.signbit() | nan)
    return signs and torch.equal(nan, wide_want.isnan()) and torch.equal(wide_got[~nan], wide_want[~nan])


def known(graph: Graph, tensors: list[torch.Tensor], dtype: DType) -> tuple[torch.Tensor, ...] | None:
    """Return what the evaluator gives, None where eager has nothing for the dtype."""
    try:
        return evaluate(graph, tensors)
    except NotImplementedError:
        assert dtype.name in ABSENT, dtype
        return None


@pytest.mark.few(7)
@pytest.mark.parametrize(("place", "kind"), covering([*SHAPES], [*SCAN_KINDS], strength=1))
def test_scan(place: tuple[tuple[int, ...], int], kind: str) -> None:
    shape, dim = place
    for dtype in dt.DTYPES:
        try:
            graph = primitive("scan", TensorType(shape, dtype), kind=kind, dim=dim)
        except VerifyError:
            continue  # the primitive is not defined for this dtype
        x = counted(dtype, shape)
        want = known(graph, [x], dtype)
        if want is not None:
            assert equal(run(graph, [x])[0], want[0]), (dtype, want)


@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("dtype", [d for d in dt.DTYPES if d.name not in ABSENT and not d.is_bool], ids=str)
def test_scan_of_special_values(dtype: DType, kind: str) -> None:
    if dtype.is_complex and kind in ("max", "min"):
        return
    values = special(dtype)
    # Each row starts at another value.
    x = torch.stack([values.roll(shift) for shift in range(len(values))])
    graph = primitive("scan", of(x), kind=kind, dim=1)
    got, want = run(graph, [x])[0], evaluate(graph, [x])[0]
    if dtype.is_complex and kind == "prod":
        torch.testing.assert_close(got, want, equal_nan=True)
    else:
        assert equal(got, want)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
def test_scan_accumulates_16_bit_floats_in_float32(dtype: DType) -> None:
    x = torch.full((5000,), 0.1, dtype=torch_dtype(dtype))
    graph = primitive("scan", of(x), kind="sum", dim=0)
    assert torch.equal(run(graph, [x])[0], x.float().cumsum(0).to(x.dtype))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["scan", "sort"])
def test_run_time_sizes(name: str, dim: int) -> None:
    attributes: dict[str, Any] = {"kind": "sum"} if name == "scan" else {"descending": False}
    graph = primitive(name, TensorType((n, m), dt.float32), dim=dim, **attributes)
    kernel = TARGET.lower(graph).load()
    for sizes in ({"n": 6, "m": 5}, {"n": 1, "m": 1}, {"n": 0, "m": 3}, {"n": 2, "m": 0}, {"n": 33, "m": 65}):
        x = torch.randn([evaluate_dim(d, sizes) for d in (n, m)])
        for got, want in zip(kernel([x]), evaluate(graph, [x]), strict=True):
            assert equal(got, want), sizes


@pytest.mark.few(5)
@pytest.mark.parametrize(("place", "descending"), covering([*SHAPES], [False, True], strength=1))
def test_sort(place: tuple[tuple[int, ...], int], descending: bool) -> None:
    shape, dim = place
    for dtype in dt.DTYPES:
        if dtype.is_complex:
            continue
        graph = primitive("sort", TensorType(shape, dtype), dim=dim, descending=descending)
        x = counted(dtype, shape)
        x = x.reshape(-1)[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))].reshape(shape)
        want = known(graph, [x], dtype)
        if want is not None:
            got = run(graph, [x])
            assert equal(got[0], want[0]) and torch.equal(got[1], want[1]), (dtype, got, want)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [d for d in dt.DTYPES if not d.is_complex], ids=str)
def test_sort_of_special_values(dtype: DType, descending: bool) -> None:
    values = special(dtype).repeat(2)
    generator = torch.Generator().manual_seed(0)
    x = torch.stack([values[torch.randperm(len(values), generator=generator)] for _ in range(20)])
    # Where eager does not sort a dtype it sorts a wider one in which the numbers have the same order.
    wide = x if dtype.name not in ABSENT else x.double() if dtype.name != "uint64" else x.long() ^ (-(2**63))
    graph = primitive("sort", of(x), dim=1, descending=descending)
    got, indices = run(graph, [x])
    want = torch.sort(wide, dim=1, descending=descending, stable=True).indices
    assert torch.equal(indices, want)
    assert torch.equal(octets(got), octets(x).take_along_dim(want[..., None], 1))


def octets(x: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each element, in a dim of their own."""
    return x.contiguous().view(torch.uint8).reshape(*x.shape, x.element_size())


@pytest.mark.parametrize("size", [2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_at_every_length(size: int, descending: bool) -> None:
    x = torch.randint(0, max(2, size // 3), (size,), generator=torch.Generator().manual_seed(size))
    graph = primitive("sort", of(x), dim=0, descending=descending)
    for got, want in zip(run(graph, [x]), evaluate(graph, [x]), strict=True):
        assert torch.equal(got, want)


def test_sort_and_scan_compute_their_operand_as_they_go() -> None:
    def program(b: Builder, x: Value) -> tuple[Value, ...]:
        total = b.scan(b.neg(b.exp(x)), kind="sum", dim=1)
        return (total, *b.emit("sort", b.transpose(b.log(total), (1, 0)), dim=0, descending=True))

    graph = Graph("f", [Value(TensorType((7, 9), dt.float64))])
    graph.outputs = program(Builder(graph.ops), *graph.args)
    x = torch.randn(7, 9, dtype=torch.float64)
    for got, want in zip(run(graph, [x]), evaluate(graph, [x]), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
    # One nest for the scan; for the sort its operand, the keys and the results.
    assert TARGET.lower(graph).texts["linalg"]().count("linalg.generic") == 4
