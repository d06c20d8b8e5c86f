"""Whether a program does the same with symbols in the place of numbers, as far as the example shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchstone.compiler.frontends.captured import Captured, Number, Plain
from torchstone.compiler.frontends.numbers import NOTE
from torchstone.compiler.ir import Expr, Graph, Operation, Value
from torchstone.compiler.ops.control import same_number


def same_program(found: Captured, plain: Captured, hints: Mapping[int, Any]) -> bool:
    """Say whether ``found`` has the calls and results of ``plain``, with values or sizes for some of its numbers.

    ``hints`` tells what values are for the example, by their id: they have to be the numbers that ``plain`` has there.
    A program may ask for the class of a number, print it, or catch what a symbol raises. Ops that are there for a
    number do not count, and neither do overloads.
    """

    def agree(one: Any, other: Any) -> bool:
        if isinstance(one, tuple) and isinstance(other, tuple):
            return len(one) == len(other) and all(map(agree, one, other))
        if isinstance(one, Value):
            hint = other if isinstance(other, Value) else hints.get(id(one), other)
            return hint is other or (type(hint) is type(other) and same_number(hint, other))
        if isinstance(one, Expr):
            return isinstance(other, Expr | int | Value)
        return type(one) is type(other) and same_number(one, other)

    def same_result(one: Any, other: Any) -> bool:
        if isinstance(one, Number) and isinstance(other, Plain):
            return agree(found.graph.outputs[one.index], other.value)
        if isinstance(one, Plain):
            return isinstance(other, Plain) and agree(one.value, other.value)
        return True

    ours, theirs = _calls(found.graph), _calls(plain.graph)
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return False
    pairs = [(op, other) for (_, op), (_, other) in zip(ours, theirs, strict=True) if not op.location.notes]
    return (
        all(agree(*both) for op, other in pairs for both in zip(op.operands, other.operands, strict=False))
        and found.out_spec == plain.out_spec
        and len(found.results) == len(plain.results)
        and all(map(same_result, found.results, plain.results))
    )


def _calls(graph: Graph) -> list[tuple[str, Operation]]:
    kept = [op for op in graph.ops if op.name.startswith("aten.") and NOTE not in op.location.notes]
    return [((op.location.notes[0] if op.location.notes else op.name).rpartition(".")[0], op) for op in kept]
