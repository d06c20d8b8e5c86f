"""Expansions as text: one ATen op in, the primitives out."""

from __future__ import annotations

import pytest

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.transforms.dce import eliminate_dead_code
from torchstone.compiler.transforms.expand import expand


def _expand(text: str) -> list[str]:
    """The ops of the expanded graph, without the frame around them."""
    graph = parse_graph(text)
    flat = expand(graph, lambda op: None if op.name.startswith("flat.") else "not a primitive")
    return [line.strip() for line in str(eliminate_dead_code(flat)).splitlines()[1:-2]]


CASES = {
    "alpha scales the second operand": (
        "graph @f(%x: f32[2], %y: f32[2]) {\n  %0: f32[2] = aten.add.Tensor(%x, %y, 3)\n  return %0\n}\n",
        [
            "%0: f32[] = flat.constant() {value=3.0, shape=[], dtype=f32}",
            "%1: f32[2] = flat.broadcast(%0) {shape=[2], dims=[]}",
            "%2: f32[2] = flat.fma(%y, %1, %x)",
        ],
    ),
    "16-bit floats are widened and rounded once; a number is not rounded first": (
        "graph @f(%x: bf16[2]) {\n  %0: bf16[2] = aten.mul.Tensor(%x, 0.1)\n  return %0\n}\n",
        [
            "%0: f32[2] = flat.cast(%x) {dtype=f32}",
            "%1: f32[] = flat.constant() {value=0.1, shape=[], dtype=f32}",
            "%2: f32[2] = flat.broadcast(%1) {shape=[2], dims=[]}",
            "%3: f32[2] = flat.mul(%0, %2)",
            "%4: bf16[2] = flat.cast(%3) {dtype=bf16}",
        ],
    ),
    "integers become float for a float function": (
        "graph @f(%x: i64[2]) {\n  %0: f32[2] = aten.sqrt.default(%x)\n  return %0\n}\n",
        ["%0: f32[2] = flat.cast(%x) {dtype=f32}", "%1: f32[2] = flat.sqrt(%0)"],
    ),
    "comparison in the promoted dtype": (
        "graph @f(%x: i64[2], %y: f32[2]) {\n  %0: bool[2] = aten.lt.Tensor(%x, %y)\n  return %0\n}\n",
        ["%0: f32[2] = flat.cast(%x) {dtype=f32}", "%1: bool[2] = flat.lt(%0, %y)"],
    ),
    "keepdim is a reshape": (
        "graph @f(%x: f32[2, 3]) {\n  %0: f32[2, 1] = aten.sum.dim_IntList(%x, [-1], true, none)\n  return %0\n}\n",
        ["%0: f32[2] = flat.reduce(%x) {kind=\"sum\", dims=[1]}", "%1: f32[2, 1] = flat.reshape(%0) {shape=[2, 1]}"],
    ),
    "integers are summed in int64": (
        "graph @f(%x: i32[3]) {\n  %0: i64[] = aten.sum.default(%x, none)\n  return %0\n}\n",
        ["%0: i64[3] = flat.cast(%x) {dtype=i64}", "%1: i64[] = flat.reduce(%0) {kind=\"sum\", dims=[0]}"],
    ),
    "a slice that takes all is nothing": (
        "graph @f(%x: f32[4]) {\n  %0: f32[4] = aten.slice.Tensor(%x, 0, 0, 9223372036854775807, 1)\n"
        "  %1: f32[2] = aten.slice.Tensor(%0, 0, -3, 4, 2)\n  return %1\n}\n",
        ["%0: f32[2] = flat.slice(%x) {start=[1], limit=[4], stride=[2]}"],
    ),
    "symbolic sizes": (
        "graph @f(%x: f32[s0, 3]) {\n  %0: f32[3*s0] = aten.view.default(%x, [-1])\n"
        "  %1: f32[3*s0-2] = aten.slice.Tensor(%0, 0, 2, 9223372036854775807, 1)\n  return %1\n}\n",
        [
            "%0: f32[3*s0] = flat.reshape(%x) {shape=[<3*s0>]}",
            "%1: f32[3*s0-2] = flat.slice(%0) {start=[2], limit=[<3*s0>], stride=[1]}",
        ],
    ),
    "a matrix product is one contraction": (
        "graph @f(%x: f32[2, 3], %y: f32[3, 4]) {\n  %0: f32[2, 4] = aten.mm.default(%x, %y)\n  return %0\n}\n",
        ["%0: f32[2, 4] = flat.contract(%x, %y) {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_expansion(name: str) -> None:
    text, expected = CASES[name]
    assert _expand(text) == expected


def test_integer_division_checks_its_divisor() -> None:
    ops = _expand(
        'graph @f(%x: i32[2], %y: i32[2]) {\n  %0: i32[2] = aten.div.Tensor_mode(%x, %y, "trunc")\n  return %0\n}\n'
    )
    assert any("flat.check" in op and 'message="ZeroDivisionError"' in op for op in ops)


def test_every_op_says_why_it_is_there() -> None:
    graph = parse_graph("graph @f(%x: f32[2]) {\n  %0: f32[2] = aten.silu.default(%x)\n  return %0\n}\n")
    flat = expand(graph, lambda op: None if op.name.startswith("flat.") else "not a primitive")
    assert flat.ops and all(op.location.notes == ("aten.silu.default",) for op in flat.ops)


def test_what_is_refused_is_named() -> None:
    graph = parse_graph(
        "graph @f(%x: bool[2], %y: bool[2]) {\n  %0: bool[] = aten.dot.default(%x, %y)\n  return %0\n}\n"
    )
    with pytest.raises(Unsupported, match=r"aten\.dot\.default: bool") as error:
        expand(graph, lambda op: None if op.name.startswith("flat.") else "not a primitive")
    assert error.value.op == "aten.dot.default"
