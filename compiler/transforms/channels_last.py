"""The pass ``channels_last``: composites that slide windows get their channels in the last dim, between transposes."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Graph, Operation, Value, map_operand, values_in
from torchstone.compiler.ops.composite import FIRST, LAST, to_channels_first, to_channels_last
from torchstone.compiler.transforms.builder import Builder


def channels_last(graph: Graph) -> Graph:
    """Return an equal graph in which each composite with channels has them last.

    Its operands of the result's rank, the input and the weight, are transposed before it, and its result after it.
    """
    if not any(op.attributes.get("channels") == FIRST for op in graph.ops):
        return graph
    out = Graph(graph.name, graph.args)
    values: dict[int, Value] = {}

    def mapped(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    for op in graph.ops:
        operands = tuple(map_operand(o, mapped) for o in op.operands)
        if op.attributes.get("channels") != FIRST:
            out.ops.append(Operation(op.name, operands, op.results, op.attributes, op.location))
            continue
        b, rank = Builder(out.ops, op.location), op.result.rank
        moved = [b.transpose(v, to_channels_last(rank)) if v.rank == rank else v for v in values_in(operands)]
        (made,) = b.emit(op.name.removeprefix("flat."), *moved, **{**op.attributes, "channels": LAST})
        values[id(op.result)] = b.transpose(made, to_channels_first(rank))
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out
