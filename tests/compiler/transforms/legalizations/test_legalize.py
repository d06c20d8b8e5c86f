"""Legalizations that are exact: each program gives the same bits with the primitive and without it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.compiler.flat import graph, legalized, pairs, primitive, special
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, Operation, parse_graph
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.bodies import BODIES
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.legalizations import LEGALIZATIONS
from torchstone.compiler.transforms.legalizations.empty import checks_to_outputs, fold_empty

INTS = (torch.int8, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float32, torch.float64)
NUMBERS = (*INTS, *FLOATS)

# Primitives whose legalization changes no bit, with the dtypes it is for and what else is missing with it.
EXACT: list[tuple[str, tuple[torch.dtype, ...], tuple[str, ...]]] = [
    ("ne", (*NUMBERS, torch.bool), ()), ("lt", NUMBERS, ()), ("le", NUMBERS, ("ge",)), ("ge", NUMBERS, ()),
    ("eq", (torch.bool,), ("xor",)), ("ne", (torch.bool,), ("xor",)), ("sub", NUMBERS, ()), ("neg", NUMBERS, ()),
    ("abs", NUMBERS, ("le",)), ("sign", NUMBERS, ("lt",)), ("max", NUMBERS, ("ne",)), ("min", NUMBERS, ("lt",)),
    ("not", INTS[:3], ()), ("rem", INTS, ()), ("ceil", FLOATS, ()), ("trunc", FLOATS, ("ceil",)), ("round", FLOATS, ()),
]  # fmt: skip


def same(program: Graph, xs: tuple[torch.Tensor, ...], *missing: str) -> None:
    for got, want in zip(legalized(program, xs, *missing), evaluate_graph(program, xs), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        assert torch.equal(got.nan_to_num(nan=77), want.nan_to_num(nan=77)), (program, got, want)


@pytest.mark.parametrize(("name", "dtypes", "others"), EXACT)
def test_exact(name: str, dtypes: tuple[torch.dtype, ...], others: tuple[str, ...]) -> None:
    for dtype in dtypes:
        xs: tuple[torch.Tensor, ...] = pairs(dtype) if PRIMITIVES[f"flat.{name}"].arity == 2 else (special(dtype),)
        if name == "rem":
            kept = (xs[1] != 0) & (xs[1] != 255 if dtype is torch.uint8 else xs[1] != -1)
            xs = (xs[0][kept], xs[1][kept])
        same(primitive(name, *xs), xs, name, *others)


@pytest.mark.parametrize("name", ["add", "mul", "max", "xor", "shift_left", "shift_right", "gt"])
def test_narrow_integers_are_widened(name: str) -> None:
    for dtype in (torch.int8, torch.int16, torch.uint8):
        xs = pairs(dtype)
        program = primitive(name, *xs)
        takes = {"int8", "int16", "uint8"}
        out = expand(program, lambda op: "narrow" if op.name == f"flat.{name}" and _last(op) in takes else None)  # noqa: B023
        assert torch.equal(evaluate_graph(out, xs)[0], evaluate_graph(program, xs)[0])


def _last(op: Operation) -> str:
    return list(op.values)[-1].dtype.name


def test_what_has_no_rule_is_refused_in_the_words_of_the_target() -> None:
    x = torch.ones(2)
    with pytest.raises(Unsupported, match=r"^flat.exp: the target says no") as caught:
        expand(primitive("exp", x), lambda op: f"{op.name}: the target says no")
    assert caught.value.op == "flat.exp"
    # A rule that needs what the target lacks too names both.
    with pytest.raises(Unsupported, match=r"^flat.tan: flat.cos: no"):
        expand(primitive("tan", x), lambda op: f"{op.name}: no" if op.name in ("flat.tan", "flat.cos") else None)


def test_every_elementwise_primitive_has_a_rule() -> None:
    rules = {*LEGALIZATIONS, *BODIES}
    without = {name for name, p in PRIMITIVES.items() if p.elementwise and name not in rules}
    assert without == {"flat.select", "flat.bitcast"}


CASTS = [
    (torch.float32, torch.int64), (torch.int64, torch.float32), (torch.uint8, torch.int64),
    (torch.uint8, torch.float32), (torch.int64, torch.int8), (torch.int64, torch.float16), (torch.bool, torch.float32),
    (torch.bool, torch.int32), (torch.float32, torch.bool), (torch.int16, torch.int64), (torch.float32, torch.uint8),
    (torch.bfloat16, torch.float16),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_cast(source: torch.dtype, target: torch.dtype) -> None:
    x = special(source)
    if source is torch.float32 and target is not torch.bool:
        info, whole = torch.iinfo(target), x.double().trunc()
        x = x[(whole >= info.min) & (whole < 2.0 ** (info.bits - (info.min < 0)))]
    if source is torch.int64:
        # Ties and near-ties at every size, where a second rounding would show.
        bits = torch.arange(1, 63).repeat_interleave(7)
        x = torch.cat([x, (1 << bits) + (1 << (bits - 24).clamp(min=0)) + torch.arange(-3, 4).repeat(62)])
    pair = (source, target)

    def takes(op: Operation) -> str | None:
        (value,) = op.values if op.name == "flat.cast" else (None,)
        here = value and (getattr(torch, value.dtype.name), getattr(torch, op.attributes["dtype"].name))
        return "no such cast" if here == pair else None

    program = primitive("cast", x, dtype=dt.BY_NAME[str(target)[6:]])
    out = expand(program, takes)
    assert len(out.ops) > 1
    (got,), (want,) = evaluate_graph(out, (x,)), evaluate_graph(program, (x,))
    assert torch.equal(got.nan_to_num(nan=77), want.nan_to_num(nan=77))


def forms(program: Graph, x: torch.Tensor, *xs: torch.Tensor, **restricted: Any) -> None:
    """Require the same result when a target takes only ops whose attributes pass their predicate in ``restricted``."""

    def takes(op: Operation) -> str | None:
        allowed = restricted.get(op.name.removeprefix("flat."), lambda op: True)
        return None if allowed(op) else "restricted"

    out = expand(program, takes)
    for got, want in zip(evaluate_graph(out, (x, *xs)), evaluate_graph(program, (x, *xs)), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want)


def test_restricted_movement() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    same_rank = lambda op: next(op.values).rank == op.result.rank  # noqa: E731
    unit = lambda op: set(op.attributes["stride"]) == {1}  # noqa: E731
    forms(primitive("broadcast", x, shape=(2, 3, 4, 5), dims=(1, 2, 3)), x, broadcast=same_rank)
    forms(primitive("broadcast", x[0, 0], shape=(5, 2), dims=(0,)), x[0, 0], broadcast=same_rank)
    forms(primitive("reverse", x, dims=(0, 1, 2)), x, reverse=lambda op: len(op.attributes["dims"]) == 1)
    for step in range(1, 7):
        for start in range(3):
            forms(primitive("slice", x, start=(0, 0, start), limit=(3, 4, 5), stride=(2, 1, step)), x, slice=unit)
    value = torch.tensor(7.0)
    forms(primitive("pad", x, value, low=(1, 0, 2), high=(0, 0, 3)), x, value, pad=lambda op: False)
    forms(graph(lambda b, x: b.add(x, b.iota(size=5, dtype=dt.float32)), x[0, 0]), x[0, 0], iota=lambda op: False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8])
def test_restricted_reductions(dtype: torch.dtype) -> None:
    x = (torch.arange(105).reshape(3, 5, 7) % 5 - 2).to(dtype)
    one = lambda op: len(op.attributes["dims"]) == 1  # noqa: E731
    for kind in ("sum", "prod", "max", "min"):
        forms(primitive("reduce", x, kind=kind, dims=(0, 1, 2)), x, reduce=one)
    for kind in ("prod", "max", "min"):
        for size in range(1, 8):
            y = x[:, :, :size].contiguous()
            absent = lambda op: op.attributes["kind"] == "sum"  # noqa: E731
            forms(primitive("reduce", y, kind=kind, dims=(2,)), y, reduce=absent)
    for kind in ("argmax", "argmin"):
        forms(primitive("arg_reduce", x, kind=kind, dim=1), x, arg_reduce=lambda op: False)


def test_arg_reduce_prefers_the_first_nan() -> None:
    inf, nan = math.inf, math.nan
    x = torch.tensor([[1.0, nan, 2.0, nan], [-inf, -inf, -inf, -inf], [3.0, inf, inf, 0.0]])
    for kind in ("argmax", "argmin"):
        same(primitive("arg_reduce", x, kind=kind, dim=1), (x,), "arg_reduce")


def test_contract_becomes_a_batched_matmul() -> None:
    a, b = torch.randn(2, 3, 4, 5), torch.randn(5, 3, 4, 2)
    batched = lambda op: all(v.rank == 3 for v in op.values)  # noqa: E731
    dims = {"a_batch": (0,), "b_batch": (3,), "a_sum": (1, 3), "b_sum": (1, 0)}
    forms(primitive("contract", a, b, **dims), a, b, contract=batched)
    i, j = torch.randint(-9, 9, (2, 3, 4)), torch.randint(-9, 9, (2, 4, 5))
    dims = {"a_batch": (0,), "b_batch": (0,), "a_sum": (2,), "b_sum": (1,)}
    forms(primitive("contract", i, j, **dims), i, j, contract=lambda op: False)


def test_fold_empty_leaves_no_op_that_reads_or_makes_nothing() -> None:
    text = """graph @f(%x: f32[0, 3], %y: f32[2, 3], %v: f32[]) {
  %0: f32[0, 3] = flat.exp(%x)
  %1: f32[3] = flat.reduce(%0) {kind="sum", dims=[0]}
  %2: f32[2, 3] = flat.concat(%0, %y) {dim=0}
  %3: f32[1, 3] = flat.pad(%0, %v) {low=[1, 0], high=[0, 0]}
  return %0, %1, %2, %3
}
"""
    expected = """graph @f(%x: f32[0, 3], %y: f32[2, 3], %v: f32[]) {
  %0: f32[0, 3] = flat.constant() {value=0, shape=[0, 3], dtype=f32}
  %1: f32[] = flat.constant() {value=0, shape=[], dtype=f32}
  %2: f32[3] = flat.broadcast(%1) {shape=[3], dims=[]}
  %3: f32[1, 3] = flat.broadcast(%v) {shape=[1, 3], dims=[]}
  return %0, %2, %y, %3
}
"""
    program = parse_graph(text)
    folded = fold_empty(program)
    assert str(folded) == expected
    xs = (torch.empty(0, 3), torch.ones(2, 3), torch.tensor(4.0))
    for got, want in zip(evaluate_graph(folded, xs), evaluate_graph(program, xs), strict=True):
        assert torch.equal(got, want)


def test_checks_become_outputs() -> None:
    text = """graph @f(%p: bool[], %x: f32[2]) {
  flat.check(%p) {message="no"}
  %0: f32[2] = flat.neg(%x)
  return %0
}
"""
    out, messages = checks_to_outputs(parse_graph(text))
    assert messages == ("no",) and str(out).endswith("return %0, %p\n}\n") and "flat.check" not in str(out)
