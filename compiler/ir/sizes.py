"""Sizes that are known at run time only: who mentions a symbol, and who binds one that no argument has as a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.ir.dims import Dim, Expr, solve, substitute, symbols
from torchstone.compiler.ir.graph import Graph, Operation, map_operand, values_in
from torchstone.compiler.ir.types import TensorType

BIND = "flat.bind"


@dataclass(frozen=True, slots=True)
class SizeRange:
    """What a symbol may be: ``name`` is the user's for it. ``opt`` None: it is not known; ``max`` None: no bound."""

    name: str
    min: int
    opt: int | None
    max: int | None


# The size of what they give is in the values of what they take. ``aten.index.Tensor`` is one when an index is a mask.
SIZED_BY_VALUES = frozenset(
    {
        "aten._unique.default", "aten._unique2.default", "aten.bincount.default", "aten.masked_select.default",
        "aten.nonzero.default", "aten.repeat_interleave.Tensor", "aten.unique_consecutive.default",
        "aten.unique_dim.default",
    }
)  # fmt: skip


def sized_by_values(op: Operation) -> bool:
    """Say whether the sizes of an op's results depend on values."""
    if op.name == "aten.index.Tensor":
        return any(v.dtype.is_bool or v.dtype.name == "uint8" for v in values_in(op.operands[1]))
    if op.name == "aten.repeat_interleave.Tensor" and op.operands[1] is not None:
        return False
    return op.name in SIZED_BY_VALUES


def symbols_written(op: Operation) -> set[str]:
    """Return the symbols in an operation's literals."""
    found: set[str] = set()
    _gather(op.operands, found)
    _gather(op.attributes.values(), found)
    return found


def symbols_used(op: Operation) -> set[str]:
    """Return the symbols in an operation's literals and result types."""
    found = symbols_written(op)
    for result in op.results:
        if isinstance(result.type, TensorType):
            _gather(result.type.shape, found)
    return found


def symbols_mentioned(graph: Graph) -> set[str]:
    """Return the symbols in a graph's types and literals, and in those of the graphs in it."""
    found = {s for op in graph.ops for s in symbols_used(op)}
    found.update(s for arg in graph.args if isinstance(arg.type, TensorType) for s in arg.type.symbols)
    _gather(graph.outputs, found)
    return found.union(*(symbols_mentioned(g) for op in graph.ops for g in op.graphs.values()))


def _gather(items: Iterable[Any], found: set[str]) -> None:
    """Add the symbols in literals."""
    for item in items:
        if isinstance(item, Expr):
            found.update(symbols(item))
        elif isinstance(item, tuple):
            _gather(item, found)


def substitute_symbols(graph: Graph, values: Mapping[str, Dim]) -> None:
    """Put sizes in the place of symbols, in place, in a graph and in the graphs in it."""

    def leaf(item: Any) -> Any:
        return substitute(item, values) if isinstance(item, Expr) else item

    for value in [*graph.args, *(r for op in graph.ops for r in op.results)]:
        if isinstance(value.type, TensorType):
            value.type = TensorType(tuple(leaf(d) for d in value.type.shape), value.type.dtype)
    for op in graph.ops:
        op.operands = tuple(map_operand(o, leaf) for o in op.operands)
        op.attributes = {name: map_operand(value, leaf) for name, value in op.attributes.items()}
        for nested in op.graphs.values():
            substitute_symbols(nested, values)
    graph.outputs = tuple(map_operand(o, leaf) for o in graph.outputs)


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


def bind_symbols(graph: Graph, tensors: Sequence[Any]) -> dict[str, int]:
    """Return the value of each symbol that stands as a size of an argument: alone, or else as ``a * symbol + b``."""
    typed = [(arg.type, t) for arg, t in zip(graph.args, tensors, strict=True) if isinstance(arg.type, TensorType)]
    sizes = [(d, int(n)) for kind, t in typed for d, n in zip(kind.shape, t.shape, strict=True) if isinstance(d, Expr)]
    bound: dict[str, int] = {}
    for dim, size in sorted(sizes, key=lambda found: not str(found[0]).isidentifier()):
        if (found := solve(dim, size)) is not None:
            bound.setdefault(*found)
    return bound
