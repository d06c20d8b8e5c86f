"""The pass ``eliminate-dead-code``: ops go that have no effect and whose results nobody uses."""

from __future__ import annotations

from operator import is_

from torchstone.compiler.ir import Graph, Operation, values_in
from torchstone.compiler.library import has_effect


def eliminate_dead_code(graph: Graph) -> Graph:
    """Return the graph, or a new one, without ops that have no effect and whose results nobody uses."""
    live = {id(v) for v in values_in(graph.outputs)}
    kept: list[Operation] = []
    for op in reversed(graph.ops):
        if has_effect(op) or any(id(r) in live for r in op.results):
            kept.append(op.with_graphs(eliminate_dead_code))
            live.update(id(v) for v in op.values)
    kept.reverse()
    same = len(kept) == len(graph.ops) and all(map(is_, kept, graph.ops))
    return graph if same else Graph(graph.name, graph.args, kept, graph.outputs)
