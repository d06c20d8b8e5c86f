"""The contract's verifier passes what keeps the contract and names the property that a graph breaks."""

import pytest

from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import Operation, parse_graph
from torchstone.compiler.transforms.verify import verify


def takes(op: Operation) -> str | None:
    return "no square roots here" if op.name == "flat.sqrt" else None


def graph(line: str, args: str = "%x: f32[2]"):
    return parse_graph(f"graph @f({args}) {{\n  {line}\n  return %0\n}}")


def test_a_graph_that_keeps_the_contract_passes() -> None:
    verify(graph("%0: f32[2] = flat.exp(%x)"), takes)
    verify(graph("%0: f32[2], %1: none = aten.foo.default(%x)"), takes)


@pytest.mark.parametrize(
    ("line", "args", "message"),
    [
        ("%0: f32[2] = aten.add_.Tensor(%x, %x, 1)", "%x: f32[2]", "aten.add_.Tensor writes in place"),
        ("%0: f32[2] = aten.add.out(%x, %x, 1, %x)", "%x: f32[2]", "aten.add.out writes in place"),
        ("%0: f32[2] = flat.sqrt(%x)", "%x: f32[2]", "not in the target's legal set: no square roots here"),
        ("%0: f32[?] = aten.foo.default(%x)", "%x: f32[2]", "a result of aten.foo.default has an unknown size: f32[?]"),
        (
            "%0: f32[n] = flat.iota() {size=<n>, dtype=f32}",
            "%x: f32[2]",
            "flat.iota uses the size n, which nothing binds",
        ),
        ("%0: f32[?] = flat.exp(%x)", "%x: f32[?]", "an argument has an unknown size: f32[?]"),
        ("%0: f32[3] = flat.exp(%x)", "%x: f32[2]", "flat.exp gives f32[2], the graph says f32[3]"),
    ],
)
def test_a_broken_property_is_named(line: str, args: str, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(graph(line, args), takes)
    assert message in str(caught.value)


def test_operators_that_end_in_two_underscores_do_not_write() -> None:
    verify(graph("%0: f32[2] = aten.__and__.Tensor(%x, %x)"), takes)
