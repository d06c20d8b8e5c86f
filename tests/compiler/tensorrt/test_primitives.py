"""Every primitive the target takes computes what the eager evaluator computes, special values included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported, VerifyError
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.tensorrt import CHECK, takes
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder

from .graphs import kernel, legal, static

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 80.0, -80.0, math.inf, -math.inf, math.nan]
INTEGERS = [0, 1, -1, 2, -2, 7, -7, 100, -100, 12345]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.int32, torch.int64)
ALL = (*FLOATS, *INTS, torch.bool)
# The bits of a NaN are not seen.
NOT_OF_NAN = {"copysign"}


def values(dtype: torch.dtype, shape: tuple[int, ...], shift: int = 0) -> torch.Tensor:
    """Return a tensor that walks through the special values of a dtype."""
    pool = [True, False, False] if dtype is torch.bool else SPECIAL if dtype.is_floating_point else INTEGERS
    count = math.prod(shape)
    return torch.tensor([pool[(i * 3 + shift) % len(pool)] for i in range(count)], dtype=dtype).reshape(shape)


def agree(build: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Assert that the lowered graph gives the evaluator's values, dtypes and shapes."""
    graph = static(build, *tensors)
    wanted = evaluate_graph(graph, tensors)
    for got, want in zip(kernel(graph)(tensors), wanted, strict=True):
        tolerance = {} if got.dtype.is_floating_point else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(got, want, equal_nan=True, **tolerance)


def _elementwise() -> list[tuple[str, torch.dtype]]:
    """Every (primitive, dtype) that is taken as it is or legalized, by asking."""
    cells = []
    for row in PRIMITIVES.values():
        plain = row.elementwise and not row.attributes and row.name not in ("select", "complex")
        for dtype in ALL if plain else ():
            x = values(dtype, (4,))
            try:
                legal(static(lambda b, *x, row=row: b.emit(row.name, *x)[0], *[x] * (row.arity or 0)))
            except (VerifyError, Unsupported):
                continue
            cells.append((row.name, dtype))
    return cells


def test_elementwise_cells_are_many() -> None:
    assert len(_elementwise()) >= 100


@pytest.mark.parametrize(("name", "dtype"), _elementwise())
def test_elementwise(name: str, dtype: torch.dtype) -> None:
    arity = PRIMITIVES[f"flat.{name}"].arity or 0
    size = 10 if dtype in INTS else 256
    operands = [values(dtype, (size,)).roll(shift) for shift in ((0, 7, 3) if size == 10 else (0, 5, 9))][:arity]
    if arity == 2 and size == 256:
        # All pairs of special values.
        grid = values(dtype, (16, 1)), values(dtype, (1, 16))
        operands = [g.expand(16, 16).reshape(-1).contiguous() for g in grid]
    if name in ("div", "rem") and dtype in INTS:  # by zero unspecified
        operands[1] = torch.where(operands[1] == 0, 3, operands[1])

    def build(b: Builder, *x: Value) -> Value:
        return b.emit(name, *x)[0]

    if name in NOT_OF_NAN:
        numbers = [x.masked_fill(x.isnan(), 1.0) for x in operands]
        run = kernel(static(build, *operands))
        for i, x in enumerate(operands):  # one NaN operand is enough
            with pytest.raises(Unsupported, match=f"{name} of NaN"):
                run((*numbers[:i], x, *numbers[i + 1 :]))
        operands = numbers
    agree(build, *operands)


@pytest.mark.parametrize("dtype", ALL)
def test_select(dtype: torch.dtype) -> None:
    agree(lambda b, p, x, y: b.select(p, x, y), values(torch.bool, (9,)), values(dtype, (9,)), values(dtype, (9,), 1))


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ALL)
def test_cast(source: torch.dtype, target: torch.dtype) -> None:
    x = values(source, (16,))
    if target in INTS and source.is_floating_point:
        x = x.nan_to_num(posinf=9, neginf=-9)  # out of range is unspecified
    agree(lambda b, x: b.cast(x, dt.BY_NAME[str(target).removeprefix("torch.")]), x)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    ("shape", "target", "dims"),
    [
        ((3,), (2, 3), (1,)),
        ((2, 1, 3), (2, 4, 3), (0, 1, 2)),
        ((), (2, 2), ()),
        ((1,), (0,), (0,)),
        ((2,), (2, 3, 4), (0,)),
        ((1, 1), (1, 1), (0, 1)),
        ((0, 1), (0, 5), (0, 1)),
    ],
)
def test_broadcast(dtype: torch.dtype, shape: Any, target: Any, dims: Any) -> None:
    agree(lambda b, x: b.emit("broadcast", x, shape=target, dims=dims)[0], values(dtype, shape))


@pytest.mark.parametrize("dtype", ALL)
def test_movement(dtype: torch.dtype) -> None:
    x, y = values(dtype, (2, 3, 4)), values(dtype, (2, 1, 4), 1)
    agree(lambda b, x: b.reshape(x, (4, 6)), x)
    agree(lambda b, x: b.reshape(x, ()), values(dtype, (1, 1)))
    agree(lambda b, x: b.reshape(x, (0, 7)), values(dtype, (3, 0)))
    agree(lambda b, x: b.transpose(x, (2, 0, 1)), x)
    agree(lambda b, x: b.emit("slice", x, start=(0, 1, 1), limit=(2, 3, 4), stride=(1, 1, 2))[0], x)
    agree(lambda b, x: b.emit("slice", x, start=(2, 0, 0), limit=(2, 3, 4), stride=(1, 2, 3))[0], x)
    agree(lambda b, x: b.reverse(x, dims=(0, 2)), x)
    agree(lambda b, x: b.reverse(x, dims=(0,)), values(dtype, (0, 2)))
    agree(lambda b, x, y: b.concat(x, y, x, dim=1), x, y)
    agree(lambda b, x: b.concat(x, dim=1), x)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_pad(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    agree(lambda b, x, v: b.pad(x, v, low=(1, 0), high=(2, 3)), values(dtype, shape), values(dtype, (), 3))
    agree(lambda b, x, v: b.pad(x, v, low=(), high=()), values(dtype, ()), values(dtype, (), 3))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_iota(dtype: torch.dtype, size: int) -> None:
    agree(lambda b: b.iota(size=size, dtype=dt.BY_NAME[str(dtype).removeprefix("torch.")]))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_constant(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    data = values(dtype, shape)
    kind = dt.BY_NAME[str(dtype).removeprefix("torch.")]
    agree(lambda b: b.constant(value=tuple(data.reshape(-1).tolist()), shape=shape, dtype=kind))
    agree(lambda b: b.constant(value=values(dtype, ()).item(), shape=shape, dtype=kind))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "and", "or"])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2), ()])
def test_reduce(kind: str, dims: tuple[int, ...]) -> None:
    for dtype in (torch.bool,) if kind in ("and", "or") else (*FLOATS, *INTS):
        x = values(dtype, (3, 4, 5))
        agree(lambda b, x: b.emit("reduce", x, kind=kind, dims=dims)[0], x)
        finite = x.nan_to_num(0.5, 2, -2) if dtype.is_floating_point else x
        agree(lambda b, x: b.emit("reduce", x, kind=kind, dims=dims)[0], finite)


@pytest.mark.parametrize("kind", ["sum", "prod", "and", "or"])
def test_reduce_of_nothing(kind: str) -> None:
    for dtype in (torch.bool,) if kind in ("and", "or") else (*FLOATS, *INTS):
        agree(lambda b, x: b.reduce(x, kind, (1,)), values(dtype, (2, 0, 3)))
        agree(lambda b, x: b.reduce(x, kind, (0,)), values(dtype, (2, 0, 3)))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_arg_reduce(kind: str, dtype: torch.dtype) -> None:
    x = values(dtype, (4, 6, 5))
    ties = torch.tensor([[1, 3, 3, 2], [2, 2, 2, 2], [0, 1, 0, 1]], dtype=dtype)
    worst = torch.full((2, 3), -math.inf if kind == "argmax" else math.inf).to(dtype) if dtype in FLOATS else ties
    for tensor in (x, ties, worst):
        for dim in range(tensor.dim()):
            agree(lambda b, x, dim=dim: b.arg_reduce(x, kind=kind, dim=dim), tensor)
    one = torch.tensor([[1.0, math.nan, 3.0, math.nan], [math.nan] * 4, [-math.inf] * 4]).to(dtype)
    if dtype in FLOATS:
        agree(lambda b, x: b.arg_reduce(x, kind=kind, dim=1), one)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((3, 4), (4, 5), ((), (), (1,), (0,))),
        ((2, 3, 4), (2, 4, 5), ((0,), (0,), (2,), (1,))),
        ((4, 2, 3), (5, 4, 2), ((1,), (2,), (0,), (1,))),
        ((3,), (3,), ((), (), (0,), (0,))),
        ((3,), (2,), ((), (), (), ())),
        ((2, 3), (2, 3), ((0, 1), (0, 1), (), ())),
        ((3, 0), (0, 5), ((), (), (1,), (0,))),
        ((0, 4), (4, 5), ((), (), (1,), (0,))),
        ((2, 3, 4), (3, 4, 2), ((), (), (1, 2), (0, 1))),
    ],
)
def test_contract(dtype: torch.dtype, a: Any, b: Any, attributes: Any) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(s).mul(4).to(dtype) for s in (a, b))
    names = ("a_batch", "b_batch", "a_sum", "b_sum")
    agree(lambda f, x, y: f.contract(x, y, **dict(zip(names, attributes, strict=True))), x, y)


def test_check_raises_its_message() -> None:
    def build(b: Builder, predicate: Value, x: Value) -> Value:
        b.emit("check", predicate, message="index out of range")
        return x

    run = kernel(static(build, torch.tensor(True), torch.ones(2)))
    torch.testing.assert_close(run([torch.tensor(True), torch.ones(2)])[0], torch.ones(2))
    with pytest.raises(RuntimeError, match=r"^index out of range$"):
        run([torch.tensor(False), torch.ones(2)])


def test_every_primitive_is_lowered_or_refused_with_a_reason() -> None:
    refused = set(PRIMITIVES) - set(lowers) - {CHECK}
    for name in refused:
        operation = type("Op", (), {"name": name})()
        assert takes(operation) == f"{name}: TensorRT has no such layer"
    assert set(lowers) <= set(PRIMITIVES)


def test_what_has_no_type_or_rank_in_tensorrt_is_refused() -> None:
    def reason(x: torch.Tensor) -> str | None:
        return takes(static(lambda b, x: b.concat(x, x, dim=0), x).ops[0])

    assert reason(torch.zeros(2, dtype=torch.float64)) == "flat.concat: TensorRT has no float64 tensors"
    assert reason(torch.zeros(2, dtype=torch.uint64)) == "flat.concat: TensorRT has no uint64 tensors"
    assert reason(torch.zeros(2, dtype=torch.complex64)) == "flat.concat: TensorRT has no complex64 tensors"
    assert "at most 8 dims" in (reason(torch.zeros((1,) * 9)) or "")
    bits = static(lambda b, x: b.and_(x, x), torch.ones(2, dtype=torch.int32))
    assert takes(bits.ops[0]) == "flat.and: TensorRT's elementwise AND does not take int32"
