"""The pass ``expand``: every op the target does not take is replaced by its rule's FlatIR, until it takes them all."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, blaming, describe
from torchstone.compiler.ir import Graph, Operation, Value, map_operand, values_in
from torchstone.compiler.transforms.bodies import BODIES
from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.compiler.transforms.legalizations import LEGALIZATIONS
from torchstone.compiler.transforms.legalizations.windows import narrowed
from torchstone.compiler.transforms.rules import Declined, Row, apply

Takes = Callable[[Operation], "str | None"]
Calls = Callable[[Operation], bool]
_DEEPEST = 16
# An op that takes more primitives than this wants one of its own: compiling so much text for one op takes seconds.
_LONGEST = 512


def expand(graph: Graph, takes: Takes, calls: Calls = lambda op: False) -> Graph:
    """Return a new graph in which ``takes(op)`` is None for every op, or ``calls(op)`` says it may be a library call.

    Unsupported, naming the ATen op at fault, when an op is neither taken, has a rule for its arguments nor is a call.
    """
    out = Graph(graph.name, graph.args)
    values: dict[int, Any] = {id(a): a for a in graph.args}

    def mapped(leaf: Any) -> Any:
        return values[id(leaf)] if isinstance(leaf, Value) else leaf

    def keep(op: Operation) -> None:
        operands = tuple([map_operand(o, mapped) for o in op.operands])
        same = all(map(is_, operands, op.operands))
        kept = op if same else Operation(op.name, operands, op.results, op.attributes, op.location)
        out.ops.append(kept.with_graphs(lambda nested: expand(nested, takes, calls)))
        for result in op.results:
            values[id(result)] = result

    def place(op: Operation, origin: Operation, depth: int) -> None:
        refusal = takes(op)
        if refusal is None:
            keep(op)
            return
        operands = tuple(map_operand(o, mapped) for o in op.operands)
        row = EXPANSIONS.get(op.name) or BODIES.get(op.name) or LEGALIZATIONS.get(op.name)
        if row is None or depth > _DEEPEST:
            raise _unsupported(op, origin, refusal)
        try:
            built, results = _apply(row, op, operands, origin)
        except Declined:
            raise _unsupported(op, origin, refusal) from None
        for value in values_in(operands):
            values.setdefault(id(value), value)
        for new in narrowed(built, results, takes):
            place(new, origin, depth + 1)
        values.update({id(old): mapped(new) for old, new in zip(op.results, results, strict=True)})

    for op in narrowed(graph.ops, graph.outputs, takes):
        before = len(out.ops)
        try:
            with blaming(op):
                place(op, op, 0)
            if (count := len(out.ops) - before) > _LONGEST:
                reason = f"{op.name}: takes {count} primitives here, and {_LONGEST} is the most for one op"
                raise _unsupported(op, op, reason)
        except Unsupported:
            if not calls(op):
                raise
            del out.ops[before:]
            keep(op)
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out


def _apply(
    row: Row, op: Operation, operands: tuple[Any, ...], origin: Operation
) -> tuple[list[Operation], tuple[Any, ...]]:
    built: list[Operation] = []
    try:
        return built, apply(row, op, operands, built)
    except TorchstoneError as error:
        error.op = error.op if error.op.startswith("aten.") else origin.name
        error.where = error.where or describe(origin)
        raise


def _unsupported(op: Operation, origin: Operation, refusal: str) -> Unsupported:
    reason = refusal if op is origin else f"{origin.name}: {refusal}"
    return Unsupported(reason, op=origin.name, where=describe(origin))
