"""The IR prints to text and parses back to an equal graph; bad text is refused with line and column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import ParseError, parse_graph, print_graph
from torchstone.compiler.ir.dims import evaluate, floordiv, mod, parse_dim, symbol
from torchstone.compiler.ops.verifier import verify_graph

EVERYTHING = """\
graph @f(%x: f32[2, 2*s0], %n: int) {
  %0: f32[2, 2*s0] = aten.add.Tensor(%x, %x, 1) at "a b.py":12:"<lambda>" via "why \\"not\\""
  %1: f32[4*s0+1, floordiv(s0, 3)], %2: bool[] = aten.foo(%0, [1, <s0+1>, none], f32, -inf, nan, complex(1.0, -2.0))
  %3: bf16[?] = aten.bar([], device("cpu"), "a\\"b", -3, 1e-05, true)
  flat.check(%2) {message="no {brace}"}
  return %1, 3, [%2, none]
}
"""


def test_everything_round_trips() -> None:
    assert print_graph(parse_graph(EVERYTHING), locations=True) == EVERYTHING


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "graph @f() {\n  %0: f32[2] = flat.neg(%1)\n  return\n}",
            "line 2, column 25: %1 is used before it is defined",
        ),
        ("graph @f(%x: f33[2]) { return }", "line 1, column 14: unknown type 'f33' (did you mean \"f32\"?)"),
        ("graph @f(%x: f32[2], %x: f32[2]) { return }", "%x is defined twice"),
        ("graph @f(%x: f32[2/3]) { return }", "unexpected '/'"),
        ("graph @f(%x: f32[__import__(1, 2)]) { return }", "not a size"),
        ("graph f() { return }", "a graph's name starts with @"),
        ("graph @f() { return", "expected an operand, got 'end of text'"),
        ("graph @f() { return } 3", "text after the graph"),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0: f32[3] = flat.add(%x, %y)", "add: operand shapes differ, got f32[2, 3] and f32[3]"),
        ("%0: f32[2, 4] = flat.neg(%x)", "flat.neg gives f32[2, 3], the graph says f32[2, 4]"),
        ("%0: f32[2, 3] = flat.negg(%x)", 'no primitive flat.negg (did you mean "flat.neg"?)'),
        ("%0: f32[2, 3] = flat.not(%x)", "not: takes bool/int/uint, got f32[2, 3]"),
        ("%0: f32[7] = flat.reshape(%x) {shape=[7]}", "reshape: f32[2, 3] has not as many elements as [7]"),
        ("%0: f32[2] = flat.reduce(%x) {kind=\"mean\", dims=[1]}", "kind must be one of"),
        ("%0: f32[2] = flat.reduce(%x) {dims=[1]}", "has attributes ['dims'], wants ['dims', 'kind']"),
        ("%0: f32[2, 3] = flat.add(%x)", "flat.add takes 2 operands, got 1"),
    ],
)  # fmt: skip
def test_the_verifier_names_the_broken_rule(line: str, message: str) -> None:
    graph = parse_graph(f"graph @f(%x: f32[2, 3], %y: f32[3]) {{\n  {line}\n  return %0\n}}")
    with pytest.raises(VerifyError) as caught:
        verify_graph(graph)
    assert message in str(caught.value)


SIZES = st.recursive(
    st.one_of(st.integers(-4, 9), st.sampled_from(["a", "b", "c"]).map(symbol)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: floordiv(*p)),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: mod(*p)),
    ),
    max_leaves=8,
)
VALUES = st.fixed_dictionaries({name: st.integers(0, 12) for name in "abc"})


@given(SIZES, SIZES, VALUES)
def test_sizes_compute_what_python_computes(a, b, values) -> None:
    x, y = evaluate(a, values), evaluate(b, values)
    assert evaluate(a + b, values) == x + y
    assert evaluate(a - b, values) == x - y
    assert evaluate(a * b, values) == x * y
    assert evaluate(floordiv(a, 3), values) == x // 3
    assert evaluate(mod(a, 3), values) == x % 3
    if y:
        assert evaluate(floordiv(a, b), values) == x // y


@given(SIZES)
def test_sizes_round_trip(a) -> None:
    assert parse_dim(str(a)) == a


def test_equal_sizes_are_equal_however_they_were_made() -> None:
    n, m = symbol("n"), symbol("m")
    assert (n + 1) * (m - 2) == n * m - 2 * n + m - 2
    assert floordiv(6 * n * m, 2 * m) == 3 * n
    assert n != m
    assert str(2 * n * n - 1) == "2*n*n-1"
