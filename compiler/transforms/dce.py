"""The pass ``eliminate-dead-code``: ops go that have no effect and whose results nobody uses.

Of a singular value decomposition the vectors go where the values alone are used, by an argument of the op.
"""

from __future__ import annotations

from operator import is_

from torchstone.compiler.ir import Graph, Operation, TensorType, Value, values_in
from torchstone.compiler.library import has_effect


def eliminate_dead_code(graph: Graph) -> Graph:
    """Return the graph, or a new one, without ops that have no effect and whose results nobody uses."""
    live = {id(v) for v in values_in(graph.outputs)}
    kept: list[Operation] = []
    for op in reversed(graph.ops):
        if has_effect(op) or any(id(r) in live for r in op.results):
            kept.append(_values_alone(op, live).with_graphs(eliminate_dead_code))
            live.update(id(v) for v in op.values)
    kept.reverse()
    same = len(kept) == len(graph.ops) and all(map(is_, kept, graph.ops))
    return graph if same else Graph(graph.name, graph.args, kept, graph.outputs)


def _values_alone(op: Operation, live: set[int]) -> Operation:
    """The decomposition without its vectors, where nobody uses them; every other op as it is.

    PyTorch's ``svdvals`` asks for vectors when traced, and not in eager. LAPACK's algorithm for them takes longer,
    and gives up for matrices with infinities, for which the other one gives NaN.
    """
    if op.name != "aten._linalg_svd.default" or id(op.results[0]) in live or id(op.results[2]) in live:
        return op
    matrix, full, vectors, driver = op.operands
    if not vectors:
        return op
    left, values, right = op.results
    none = (Value(TensorType((0,), vector.dtype), vector.name) for vector in (left, right))
    return Operation(
        op.name, (matrix, full, False, driver), (next(none), values, next(none)), dict(op.attributes), op.location
    )
