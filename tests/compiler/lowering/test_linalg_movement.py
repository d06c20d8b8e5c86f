"""Primitives that move elements, on every dtype and with run-time sizes, bit for bit."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import torch

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate as evaluate_dim
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.lowering.linalg.movement import AT_ONCE, groups
from torchstone.compiler.runtime.cpu.bridge import torch_dtype

from .harness import evaluate, primitive, run

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

n, m = symbol("n"), symbol("m")
# Eager has no flip of these.
NO_FLIP = ("uint16", "uint32", "uint64", "complex32", *(d.name for d in dt.DTYPES if d.is_float and d.bits == 8))

STATIC: list[tuple[str, list[tuple], dict[str, Any]]] = [
    ("broadcast", [(3, 1)], {"shape": (2, 3, 4), "dims": (1, 2)}),
    ("broadcast", [()], {"shape": (2, 0), "dims": ()}),
    ("broadcast", [()], {"shape": (), "dims": ()}),
    ("broadcast", [(0,)], {"shape": (3, 0), "dims": (1,)}),
    ("reshape", [(2, 3, 4)], {"shape": (6, 4)}),
    ("reshape", [(2, 3, 4)], {"shape": (4, 6)}),
    ("reshape", [(2, 3, 1, 4)], {"shape": (1, 6, 2, 2, 1)}),
    ("reshape", [(5, 4, 9)], {"shape": (5, 6, 6)}),
    ("reshape", [(6, 1)], {"shape": (2, 3)}),
    ("reshape", [(1, 1)], {"shape": ()}),
    ("reshape", [()], {"shape": (1, 1, 1)}),
    ("reshape", [(0, 3)], {"shape": (3, 0, 5)}),
    ("transpose", [(2, 3, 4)], {"permutation": (2, 0, 1)}),
    ("transpose", [()], {"permutation": ()}),
    ("slice", [(7, 5)], {"start": (1, 0), "limit": (6, 5), "stride": (2, 3)}),
    ("slice", [(7, 5)], {"start": (3, 0), "limit": (3, 5), "stride": (1, 1)}),
    ("slice", [()], {"start": (), "limit": (), "stride": ()}),
    ("reverse", [(3, 4)], {"dims": (0, 1)}),
    ("reverse", [()], {"dims": ()}),
    ("concat", [(2, 3), (2, 1), (2, 0)], {"dim": 1}),
    ("concat", [(2, 3)], {"dim": 0}),
    ("concat", [(0,), (0,)], {"dim": 0}),
    ("concat", [(2, 1 + k % 3) for k in range(19)], {"dim": 1}),
    ("pad", [(2, 3), ()], {"low": (1, 0), "high": (0, 2)}),
    ("pad", [(0, 3), ()], {"low": (1, 0), "high": (0, 2)}),
    ("pad", [(), ()], {"low": (), "high": ()}),
]

DYNAMIC: list[tuple[str, list[tuple], dict[str, Any]]] = [
    ("broadcast", [(n, 1)], {"shape": (2, n, m), "dims": (1, 2)}),
    ("broadcast", [(1, n)], {"shape": (n, n), "dims": (0, 1)}),
    ("reshape", [(n, 4)], {"shape": (n * 4,)}),
    ("reshape", [(n, 4)], {"shape": (2 * n, 2)}),
    ("reshape", [(n, m)], {"shape": (m, n)}),
    ("reshape", [(n, 4, m)], {"shape": (4 * n, m)}),
    ("reshape", [(n,)], {"shape": (1, n, 1)}),
    ("transpose", [(n, 3)], {"permutation": (1, 0)}),
    ("slice", [(n, 5)], {"start": (1, 0), "limit": (n, 5), "stride": (2, 1)}),
    ("slice", [(n,)], {"start": (n - 1,), "limit": (n,), "stride": (1,)}),
    ("reverse", [(n, 4)], {"dims": (0, 1)}),
    ("concat", [(n, 3), (m, 3)], {"dim": 0}),
    ("concat", [(n, 3), (m, 3), (2, 3)] * 7, {"dim": 0}),
    ("pad", [(n,), ()], {"low": (1,), "high": (m,)}),
]


def counted(dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    """Return 0, 1, 2, … in a dtype, 8-bit floats by their codes."""
    values = torch.arange(torch.Size(shape).numel())
    if dtype.is_complex:
        return torch.complex(values.float(), -values.float()).to(torch_dtype(dtype)).reshape(shape)
    if dtype.bits == 8 and dtype.is_float:
        return (values % 100).to(torch.uint8).view(torch_dtype(dtype)).reshape(shape)
    return (values % 2 if dtype.is_bool else values % 100).to(torch_dtype(dtype)).reshape(shape)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    def raw(t: torch.Tensor) -> torch.Tensor:
        return torch.empty(t.shape, dtype=t.dtype).copy_(t).reshape(-1).view(torch.uint8)

    return got.dtype == want.dtype and got.shape == want.shape and (not got.numel() or torch.equal(raw(got), raw(want)))


def name_of(case: Any) -> str:
    return f"{case[0]}-{case[1][:3]}-{len(case[1])}-{'-'.join(str(v) for v in case[2].values())}".replace(" ", "")


@pytest.mark.few(9)
@pytest.mark.parametrize("case", STATIC, ids=name_of)
def test_static(case: Any) -> None:
    name, shapes, attributes = case
    for dtype in dt.DTYPES:
        tensors = [counted(dtype, s) for s in shapes]
        graph = primitive(name, *(TensorType(s, dtype) for s in shapes), **attributes)
        if name == "reverse" and dtype.name in NO_FLIP:
            continue
        (got,), (want,) = run(graph, tensors), evaluate(graph, tensors)
        assert same(got, want), f"{dtype}: {got}, expected {want}"


@pytest.mark.parametrize("case", DYNAMIC, ids=name_of)
def test_run_time_sizes(case: Any) -> None:
    name, shapes, attributes = case
    # m needs an argument to be bound by.
    types = [TensorType(s, dt.float32) for s in shapes]
    graph = primitive(name, *types, **attributes)
    extra = primitive("neg", TensorType((n, m), dt.float32)).args
    graph.args.extend(extra)
    kernel = TARGET.lower(graph).load()
    for sizes in ({"n": 6, "m": 6}, {"n": 1, "m": 1}, {"n": 3, "m": 5}):
        shaped = [tuple(evaluate_dim(d, sizes) for d in t.dims) for t in (*types, extra[0].tensor)]
        tensors = [counted(dt.float32, s) for s in shaped]
        assert same(kernel(tensors)[0], evaluate(graph, tensors)[0]), sizes


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1, AT_ONCE * AT_ONCE + 2])
def test_no_more_are_joined_in_one_buffer_than_bufferization_takes_little_time_for(count: int) -> None:
    graph = primitive("concat", *[TensorType((k % 2 + 1,), dt.float32) for k in range(count)], dim=0)
    text = TARGET.lower(graph).texts["linalg"]()
    into = Counter[str]()
    of: dict[str, str] = {}
    for result, target in re.findall(r"(%\w+) = tensor.insert_slice %\w+ into (%\w+)", text):
        of[result] = of.get(target, target)
        into[of[result]] += 1
    assert max(into.values()) <= AT_ONCE and sum(into.values()) >= count
    if count < 20:
        tensors = [counted(dt.float32, (k % 2 + 1,)) for k in range(count)]
        assert same(run(graph, tensors)[0], torch.cat(tensors))


@pytest.mark.parametrize(
    ("dtype", "value", "shape"),
    [
        (dt.float32, 2.5, (2, 2)),
        (dt.float32, (1, 2, -3, float("nan"), float("inf"), -0.0), (2, 3)),
        (dt.boolean, (True, False), (2,)),
        (dt.boolean, True, (3,)),
        (dt.complex64, (1 + 2j, complex("nan")), (2, 1)),
        (dt.complex128, 3 - 1j, ()),
        (dt.uint8, (255, 0, 7), (3,)),
        (dt.uint64, 2**64 - 1, ()),
        (dt.int8, -128, (2,)),
        (dt.float32, (), (0, 3)),
        (dt.float16, (0.1, 1e-7), (2,)),
        (dt.bfloat16, (0.1, 1e-39), (2,)),
        (dt.BY_NAME["float8_e4m3fn"], (0.1, 500.0), (2,)),
    ],
)
def test_constant(dtype: DType, value: Any, shape: tuple[int, ...]) -> None:
    graph = primitive("constant", value=value, shape=shape, dtype=dtype)
    assert same(run(graph, [])[0], evaluate(graph, [])[0])


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(dt.float16, 3000), (dt.bfloat16, 600), (dt.uint8, 300), (dt.int64, 0), (dt.float64, 5), (dt.int32, 1)],
)
def test_iota(dtype: DType, size: int) -> None:
    graph = primitive("iota", size=size, dtype=dtype)
    assert same(run(graph, [])[0], evaluate(graph, [])[0])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((2, 3), (6,), [([0, 1], [0])]),
        ((6, 4), (2, 3, 4), [([0], [0, 1]), ([1], [2])]),
        ((4, 9), (6, 6), [([0, 1], [0, 1])]),
        ((1, 1, 6), (6, 1), [([0, 1, 2], [0, 1])]),
        ((n, 4, m), (4 * n, m), [([0, 1], [0]), ([2], [1])]),
        ((n, m), (m, n), [([0, 1], [0, 1])]),
    ],
)
def test_reshape_groups(source: tuple, target: tuple, expected: list) -> None:
    found = groups(source, target)
    assert [d for left, _ in found for d in left] == list(range(len(source)))
    assert [d for _, right in found for d in right] == list(range(len(target)))
    if source != (1, 1, 6):
        assert found == expected
