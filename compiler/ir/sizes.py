"""Which symbols an operation mentions, and which operation binds a symbol that no argument has as a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchstone.compiler.ir.dims import Expr, symbols
from torchstone.compiler.ir.graph import Graph, Operation, values_in
from torchstone.compiler.ir.types import TensorType

BIND = "flat.bind"


def symbols_used(op: Operation) -> set[str]:
    """Return the symbols in an operation's literals and result types."""
    found = {s for literal in _literals((op.operands, *op.attributes.values())) for s in symbols(literal)}
    return found.union(*(r.type.symbols for r in op.results if isinstance(r.type, TensorType)))


def _literals(item: Any) -> Iterator[Expr]:
    if isinstance(item, Expr):
        yield item
    elif isinstance(item, tuple):
        for inner in item:
            yield from _literals(inner)


def symbols_bound(graph: Graph) -> dict[str, Operation]:
    """Return the operation that binds each symbol which is not bound by the arguments.

    That is ``flat.bind``, or the first ``aten`` op with a result of such a size.
    """
    known = {s for a in graph.args if isinstance(a.type, TensorType) for s in a.type.symbols}
    bound: dict[str, Operation] = {}
    for op in graph.ops:
        if op.name == BIND or not op.name.startswith("flat."):
            for name in sorted(symbols_used(op) - known):
                bound.setdefault(name, op)
    return bound


def symbols_live(graph: Graph) -> set[str]:
    """Return the symbols in the types of the outputs."""
    return {s for v in values_in(graph.outputs) if isinstance(v.type, TensorType) for s in v.type.symbols}
