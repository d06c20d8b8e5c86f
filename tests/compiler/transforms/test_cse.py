"""Common subexpressions: what is equal is computed once, and only what is equal."""

from __future__ import annotations

from torchstone.compiler.ir import parse_graph
from torchstone.compiler.transforms.cse import eliminate_common_subexpressions


def shared(body: str, output: str) -> list[str]:
    graph = parse_graph(f"graph @f(%x: f32[4], %y: f32[4]) {{\n{body}\nreturn {output}\n}}")
    return [line.strip() for line in str(eliminate_common_subexpressions(graph)).splitlines()[1:-1]]


def test_equal_ops_are_one() -> None:
    assert shared(
        """%0: f32[4] = flat.add(%x, %y)
           %1: f32[4] = flat.add(%x, %y)
           %2: f32[4] = flat.exp(%0)
           %3: f32[4] = flat.exp(%1)""",
        "%3, %2",
    ) == ["%0: f32[4] = flat.add(%x, %y)", "%1: f32[4] = flat.exp(%0)", "return %1, %1"]


def test_operands_in_another_order_are_another_op() -> None:
    assert len(shared("%0: f32[4] = flat.sub(%x, %y)\n%1: f32[4] = flat.sub(%y, %x)", "%0, %1")) == 3


def test_constants_differ_by_sign_of_zero_class_and_dtype() -> None:
    body = "\n".join(
        f"%{n}: {kind}[] = flat.constant() {{value={value}, shape=[], dtype={kind}}}"
        for n, (kind, value) in enumerate(
            [
                ("f32", "0.0"),
                ("f32", "-0.0"),
                ("f64", "0.0"),
                ("i64", "1"),
                ("bool", "true"),
                ("f32", "0.0"),
                ("f32", "nan"),
            ]
        )
    )
    assert shared(body, "%0, %1, %2, %3, %4, %5, %6")[-1] == "return %0, %1, %2, %3, %4, %0, %5"


def test_library_calls_stay() -> None:
    call = "aten.rand_like.default(%x, none, none, none, none, none)"
    assert len(shared(f"%0: f32[4] = {call}\n%1: f32[4] = {call}", "%0, %1")) == 3
