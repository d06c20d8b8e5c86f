"""Movement, reductions and contractions through TOSA are what the evaluator computes; what runs is validated."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.compiler.flat import graph, primitive, run, special, ulp_error
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, TensorType, Value, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.tosa import TARGET
from torchstone.compiler.lowering.tosa.validate import validate
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32)
BATCHED = {"a_batch": (0,), "b_batch": (0,), "a_sum": (2,), "b_sum": (1,)}


def same(program: Graph, *xs: torch.Tensor) -> None:
    """Require that TOSA gives bit for bit what the evaluator gives."""
    want, got = evaluate_graph(program, xs), run(TARGET, program, xs)
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape, program
        assert torch.equal(g.nan_to_num(nan=77), w.nan_to_num(nan=77)), program


def block(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return the special values of a dtype, repeated, in a shape."""
    values = special(dtype)
    return values[torch.arange(math.prod(shape)) % len(values)].reshape(shape)


@pytest.mark.few(7)
@pytest.mark.parametrize("dtype", DTYPES)
def test_movement(dtype: torch.dtype) -> None:
    x = block(dtype, 3, 4, 5)
    same(primitive("broadcast", x, shape=(2, 3, 4, 5), dims=(1, 2, 3)), x)
    same(primitive("broadcast", x[:1], shape=(6, 4, 5), dims=(0, 1, 2)), x[:1])
    same(primitive("broadcast", x[0, 0], shape=(5, 2), dims=(0,)), x[0, 0])
    same(primitive("broadcast", x[0, 0, 1], shape=(2, 3), dims=()), x[0, 0, 1])
    same(primitive("reshape", x, shape=(12, 5)), x)
    same(primitive("reshape", x[:1, :1, :1], shape=()), x[:1, :1, :1])
    same(primitive("transpose", x, permutation=(2, 0, 1)), x)
    same(primitive("reverse", x, dims=(0, 2)), x)
    same(primitive("slice", x, start=(1, 0, 1), limit=(3, 4, 5), stride=(1, 3, 2)), x)
    same(primitive("slice", x, start=(0, 0, 0), limit=(1, 1, 5), stride=(2, 4, 7)), x)
    same(primitive("concat", x, x[1:], dim=0), x, x[1:])
    same(primitive("concat", x, dim=1), x)
    same(primitive("pad", x, x[0, 0, 1], low=(1, 0, 2), high=(0, 0, 3)), x, x[0, 0, 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_without_elements(dtype: torch.dtype) -> None:
    x = block(dtype, 3, 4, 5)
    none = x[:0]
    same(primitive("concat", none, x, dim=0), none, x)
    same(primitive("concat", none, none, dim=0), none, none)
    same(primitive("pad", none, x[0, 0, 1], low=(1, 0, 2), high=(0, 0, 3)), none, x[0, 0, 1])
    same(primitive("reshape", none, shape=(0, 7)), none)
    same(primitive("slice", x, start=(0, 1, 0), limit=(3, 1, 5), stride=(1, 1, 1)), x)
    same(primitive("reduce", none, kind="and" if dtype is torch.bool else "prod", dims=(0,)), none)
    if dtype is not torch.bool:
        same(primitive("contract", none, none, a_batch=(), b_batch=(), a_sum=(0,), b_sum=(0,)), none, none)


@pytest.mark.parametrize("dtype", DTYPES)
def test_creation(dtype: torch.dtype) -> None:
    kind = TensorType((1,), dt.BY_NAME[str(dtype)[6:]]).dtype
    if dtype is not torch.bool:
        same(primitive("iota", size=7, dtype=kind))
        same(primitive("iota", size=0, dtype=kind))
    for value, shape in (((1, 0, 1), (3,)), (1, (2, 2)), (0, ()), (0, (2, 0))):
        same(primitive("constant", value=value, shape=shape, dtype=kind))
    if dtype.is_floating_point:
        same(primitive("constant", value=(math.nan, math.inf, -0.0, 1e-45, 0.1), shape=(5,), dtype=kind))


def test_padding_with_a_computed_value() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.tensor(2.0)
    same(graph(lambda b, x, y: b.pad(x, b.mul(y, y), low=(1, 0), high=(0, 2)), x, y), x, y)


@pytest.mark.few(13)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "and", "or"])
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 1, 2)])
def test_reduce(kind: str, dims: tuple[int, ...]) -> None:
    for dtype in (torch.bool,) if kind in ("and", "or") else DTYPES[1:]:
        x = block(dtype, 3, 4, 5)
        if dtype.is_floating_point and kind in ("sum", "prod"):
            x = torch.linspace(0.5, 1.5, 60).reshape(3, 4, 5).to(dtype)
            (got,) = run(TARGET, primitive("reduce", x, kind=kind, dims=dims), (x,))
            wide = primitive("reduce", x.double(), kind=kind, dims=dims)
            assert ulp_error(got, evaluate_graph(wide, (x.double(),))[0]).max() <= (
                16 if dtype is torch.float32 else 0.5
            )
        else:
            same(primitive("reduce", x, kind=kind, dims=dims), x)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremum_of_infinities_and_nan(kind: str) -> None:
    inf, nan, big = math.inf, math.nan, 3.4028234663852886e38
    rows = [[-inf, -inf], [inf, inf], [-inf, -big], [inf, big], [nan, -inf], [inf, nan], [-big, -big], [0.0, -inf]]
    x = torch.tensor(rows)
    same(primitive("reduce", x, kind=kind, dims=(1,)), x)
    same(primitive("arg_reduce", x, kind=f"arg{kind}", dim=1), x)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_reduce(kind: str) -> None:
    for dtype in DTYPES[1:]:
        for dim in range(3):
            x = block(dtype, 3, 4, 5)
            same(primitive("arg_reduce", x, kind=kind, dim=dim), x)


def test_long_sums_are_not_one_rounding_after_the_other() -> None:
    x = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    (got,) = run(TARGET, primitive("reduce", x, kind="sum", dims=(0,)), (x,))
    assert ulp_error(got, x.double().sum()) <= 2
    a, b = x[:8000].reshape(1, 2, 4000), x[8000:20000].reshape(1, 4000, 3)
    (got,) = run(TARGET, primitive("contract", a, b, **BATCHED), (a, b))
    assert ulp_error(got, a.double() @ b.double()).max() <= 4


CONTRACTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {"a_batch": (), "b_batch": (), "a_sum": (1,), "b_sum": (0,)}),
    ((2, 3, 4), (4, 2, 5), {"a_batch": (0,), "b_batch": (1,), "a_sum": (2,), "b_sum": (0,)}),
    ((4,), (4,), {"a_batch": (), "b_batch": (), "a_sum": (0,), "b_sum": (0,)}),
    ((4,), (3,), {"a_batch": (), "b_batch": (), "a_sum": (), "b_sum": ()}),
    ((2, 3, 4, 5), (5, 3, 4, 2), {"a_batch": (0,), "b_batch": (3,), "a_sum": (1, 3), "b_sum": (1, 0)}),
]


@pytest.mark.parametrize(("a", "b", "dims"), CONTRACTIONS)
def test_contract(a: tuple[int, ...], b: tuple[int, ...], dims: dict[str, Any]) -> None:
    for dtype in DTYPES[1:]:
        # Small integers: every product and sum is exact in every dtype that can hold it.
        x, y = ((torch.arange(math.prod(s)) % 3).reshape(s).to(dtype) for s in (a, b))
        same(primitive("contract", x, y, **dims), x, y)


def test_dynamic_sizes() -> None:
    """Elementwise TOSA takes sizes that are not known; an op that needs them is refused by name."""
    n = symbol("n")
    args = [Value(TensorType((n, 3), dt.float32), "x"), Value(TensorType((n, 3), dt.float32), "y")]
    g = Graph("f", args)
    b = Builder(g.ops)
    g.outputs = (b.transpose(b.mul(b.add(*args), b.full(2.0, (n, 3), dt.float32)), (1, 0)), b.lt(*args))
    kernel = TARGET.lower(expand(g, TARGET.takes)).load()
    for size in (1, 4, 0):
        x, y = torch.randn(size, 3), torch.randn(size, 3)
        product, less = kernel([x, y])
        assert torch.equal(product, ((x + y) * 2).t()) and torch.equal(less, x < y)
    g.outputs = (b.reduce(args[0], "sum", (1,)),)
    with pytest.raises(Unsupported, match=r"flat.reduce: TOSA takes no dynamic sizes here, got f32\[n, 3\]"):
        expand(g, TARGET.takes)


def test_checks_are_read_after_the_run() -> None:
    x = torch.tensor([1.0, 2.0])

    def program(b: Builder, x: Value) -> tuple[Any, ...]:
        b.emit("check", b.reduce(b.gt(x, b.full_like(x, 0.0)), "and", (0,)), message="x must be positive")
        return (b.neg(x), 7)

    made = graph(program, x)
    kernel = TARGET.lower(expand(made, TARGET.takes)).load()
    negated, seven = kernel([x])
    assert torch.equal(negated, -x) and seven == 7
    with pytest.raises(RuntimeError, match=r"^x must be positive$"):
        kernel([-x])


def test_rank_limit_is_a_refusal() -> None:
    x = torch.zeros((1,) * 7)
    with pytest.raises(Unsupported, match="TOSA level 8K has at most 6 dims"):
        run(TARGET, primitive("exp", x), (x,))


def test_the_text_is_tosa_and_the_validator_refuses_what_the_profile_lacks() -> None:
    x = torch.zeros(2, 3)
    text = TARGET.lower(primitive("exp", x)).texts["tosa"]()
    assert "tosa.exp" in text and "linalg" not in text
    validate(pipelines.parse(text))
    with pytest.raises(Unsupported, match="tosa-validate refuses"):
        validate(pipelines.parse(text.replace("f32", "f64")))


def test_results_that_are_one_value_share_no_memory() -> None:
    program = primitive("exp", torch.zeros(2))
    program.outputs = (*program.outputs, *program.outputs)
    one, other = run(TARGET, program, (torch.zeros(2),))
    one.fill_(7)
    assert other.tolist() == [1.0, 1.0]


def test_an_empty_tensor_of_run_time_size_is_refused() -> None:
    empty = "%0: f32[0, s0] = flat.constant() {value=0, shape=[0, <s0>], dtype=f32}"
    program = parse_graph(f"graph @f(%x: f32[s0]) {{\n  {empty}\n  return %0\n}}\n")
    with pytest.raises(Unsupported, match=r"no empty tensors of run-time size: f32\[0, s0\]"):
        TARGET.lower(program)
