"""Whole-graph passes for targets that have no tensors without elements, or no run-time checks."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import failed_check
from torchstone.compiler.ir import Graph, Operation, TensorType, Value, map_operand
from torchstone.compiler.ops import PRIMITIVES, control
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.dce import eliminate_dead_code

_IDENTITY = {"sum": 0, "prod": 1, "and": True, "or": False}


def is_empty(value: Value) -> bool:
    """Say whether a value certainly is a tensor without elements."""
    return isinstance(value.type, TensorType) and 0 in value.type.dims


def fold_empty(graph: Graph) -> Graph:
    """Return an equal graph in which only arguments and outputs may be empty, the latter made by ``flat.constant``.

    An op that reads an empty tensor and gives elements does not depend on it: an empty sum is 0, a concat skips it, a
    pad of it is all padding.
    """
    if not any(is_empty(v) for op in graph.ops for v in (*op.values, *op.results)):
        return graph
    out = Graph(graph.name, graph.args)
    values: dict[int, Any] = {}

    def mapped(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    for op in graph.ops:
        moved = Operation(
            op.name, tuple(map_operand(o, mapped) for o in op.operands), op.results, op.attributes, op.location
        )
        folded = _fold(moved, out.ops)
        if folded is None:
            out.ops.append(moved)
        else:
            values[id(op.result)] = folded
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return eliminate_dead_code(out)


def _fold(op: Operation, ops: list[Operation]) -> Value | None:
    """Build the result of an op with an empty result or operand; None when there is nothing to fold.

    A call of a library and what the host does stay.
    """
    operands = list(op.values)
    if op.name not in PRIMITIVES or PRIMITIVES[op.name] in control.ROWS:
        return None
    if len(op.results) != 1 or not any(is_empty(v) for v in (*operands, op.result)):
        return None
    b, kind = Builder(ops, op.location), op.result.tensor
    if is_empty(op.result):
        return b.constant(value=0, shape=kind.dims, dtype=kind.dtype)
    match op.name:
        case "flat.reduce":
            return b.full(_IDENTITY[op.attributes["kind"]], kind.dims, kind.dtype)
        case "flat.contract":
            return b.full(0, kind.dims, kind.dtype)
        case "flat.pad":
            return b.broadcast(operands[1], kind.dims, ())
        case "flat.concat":
            kept = [v for v in operands if not is_empty(v)]
            return kept[0] if len(kept) == 1 else b.concat(*kept, dim=op.attributes["dim"])
    return None


def checks_to_outputs(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph with the predicate of each ``flat.check`` as one more output, and the checks' messages."""
    checks = [op for op in graph.ops if op.name == "flat.check"]
    rest = [op for op in graph.ops if op.name != "flat.check"]
    predicates = tuple(op.operands[0] for op in checks)
    return Graph(graph.name, graph.args, rest, (*graph.outputs, *predicates)), tuple(map(failed_check, checks))
