"""The pass ``cse``, common subexpression elimination: nothing is computed twice."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Graph, Operation, Value, map_operand
from torchstone.compiler.ir.graph import print_literal
from torchstone.compiler.ir.sizes import BIND
from torchstone.compiler.library import is_ordered


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Return the graph with equal FlatIR ops on equal operands computed once. Other ops may have effects: they stay."""
    out = Graph(graph.name, graph.args)
    values: dict[int, Any] = {}
    made: dict[Any, Operation] = {}

    def mapped(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    for op in graph.ops:
        moved = op
        if values:
            operands = tuple([map_operand(o, mapped) for o in op.operands])
            moved = Operation(op.name, operands, op.results, op.attributes, op.location)
        if op.graphs:
            moved = moved.with_graphs(eliminate_common_subexpressions)
        elif op.name.startswith("flat.") and op.name != BIND and not is_ordered(op):
            first = made.setdefault(_key(moved), moved)
            if first is not moved:
                values.update({id(mine): theirs for mine, theirs in zip(op.results, first.results, strict=True)})
                continue
        out.ops.append(moved)
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out


def _key(op: Operation) -> Any:
    return op.name, *map(id, op.values), *map(_literal, op.attributes.values())


def _literal(value: Any) -> Any:
    """A key for an attribute: 0.0 is not -0.0, 1 is not True, and a NaN is itself, with its sign."""
    if isinstance(value, tuple):
        return tuple(map(_literal, value))
    return (type(value), print_literal(value)) if isinstance(value, float | complex) else (type(value), value)
