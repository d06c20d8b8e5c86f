"""The types of a whole graph by the shape library: recomputed, or found where a graph came without sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.compiler.capture.program import Guard
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, VerifyError, describe
from torchstone.compiler.ir import Graph, Operation, TensorType, Type, Value, map_operand
from torchstone.compiler.ir.dims import Dim, Expr, substitute, symbol, symbols
from torchstone.compiler.transforms.shapes import FakeSizes, result_types

# An example of a size nobody gave: unlike any size that programs treat in a way of its own.
_HINT = 8
_MOST_TRIALS = 256


def check_types(graph: Graph, hints: Mapping[str, int] | None = None) -> None:
    """Raise VerifyError, naming the op, unless every result has the type that the shape library gives it.

    Ops without a shape function are taken at their word.
    """
    sizes = FakeSizes(hints or {})
    for op in graph.ops:
        try:
            expected = result_types(op, sizes)
        except Unsupported:
            continue
        if not types_match(op, expected):
            got = ", ".join(str(r.type) for r in op.results)
            raise VerifyError(
                f"{op.name} gives {', '.join(map(str, expected))}, the graph says {got}",
                op=op.name,
                where=describe(op),
            )


def types_match(op: Operation, expected: Sequence[Type]) -> bool:
    """Say whether an op's results have these types; a size that its values decide has a name of the graph's choice."""
    given = {name for v in op.values if isinstance(v.type, TensorType) for name in v.tensor.symbols}

    def same(got: Type, wanted: Type) -> bool:
        if not isinstance(got, TensorType) or not isinstance(wanted, TensorType):
            return got == wanted
        return got.dtype == wanted.dtype and got.rank == wanted.rank and all(map(same_size, got.shape, wanted.shape))

    def same_size(got: Dim | None, wanted: Dim | None) -> bool:
        decided = isinstance(wanted, Expr) and not symbols(wanted) <= given
        return isinstance(got, Expr) if decided else got == wanted

    return len(op.results) == len(expected) and all(same(r.type, t) for r, t in zip(op.results, expected, strict=True))


@dataclass(frozen=True, slots=True)
class Refined:
    """A graph whose every size is known or symbolic, and what has to hold for it to be so."""

    graph: Graph
    guards: list[Guard] = field(default_factory=list)


def refine(graph: Graph) -> Refined:
    """Return the graph with a size for every ``?``: a fresh symbol in an argument, what the ops make of it elsewhere.

    Sizes that the ops want equal become one symbol, until nothing changes. VerifyError names an op whose operands
    cannot fit, or whose result contradicts what the graph says.
    """
    fresh = _names(graph)
    known: dict[int, Type] = {id(a): _filled(a.type, fresh) for a in graph.args}
    hints = {name: _HINT for kind in known.values() if isinstance(kind, TensorType) for name in kind.symbols}
    while True:
        sizes = FakeSizes(hints)
        try:
            out = _retyped(graph, known, sizes)
        except _Misfit as misfit:
            hints = misfit.hints
            continue
        equal = sizes.equalities()
        if not equal:
            return Refined(out, sizes.guards())
        known = {key: _substituted(kind, equal) for key, kind in known.items()}


class _Misfit(Exception):
    """Operands do not fit for the example sizes; for ``hints`` they would."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        super().__init__()
        self.hints = hints


def _fitting(op: Operation, hints: Mapping[str, int]) -> Mapping[str, int] | None:
    """Return hints for which the operands fit: sizes that were anything are sizes that other operands have."""
    kinds = [v.tensor for v in op.values if isinstance(v.type, TensorType)]
    said = sorted({d for kind in kinds for d in kind.shape if isinstance(d, int)})
    open_ = sorted({name for kind in kinds for name in kind.symbols if hints.get(name) == _HINT})
    trials = itertools.islice(itertools.product((_HINT, *said), repeat=len(open_)), _MOST_TRIALS)
    for sizes in sorted(trials, key=lambda sizes: sum(size != _HINT for size in sizes)):
        trial = {**hints, **dict(zip(open_, sizes, strict=True))}
        try:
            result_types(op, FakeSizes(trial))
        except TorchstoneError:
            continue
        return trial
    return None


def _names(graph: Graph) -> Iterable[str]:
    taken = {s for a in graph.args if isinstance(a.type, TensorType) for s in a.type.symbols}
    return (name for name in (f"d{n}" for n in range(1 << 30)) if name not in taken)


def _filled(kind: Type, fresh: Iterable[str]) -> Type:
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(tuple(symbol(next(iter(fresh))) if d is None else d for d in kind.shape), kind.dtype)


def _substituted(kind: Type, values: Mapping[str, Dim]) -> Type:
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(tuple(substitute(d, values) if isinstance(d, Expr) else d for d in kind.shape), kind.dtype)


def _retyped(graph: Graph, known: Mapping[int, Type], sizes: FakeSizes) -> Graph:
    """Return a copy of the graph with argument types ``known`` and the result types that follow from them."""
    values: dict[int, Value] = {id(a): Value(known[id(a)], a.name) for a in graph.args}

    def mapped(leaf: Any) -> Any:
        return values[id(leaf)] if isinstance(leaf, Value) else leaf

    out = Graph(graph.name, [values[id(a)] for a in graph.args])
    for op in graph.ops:
        moved = Operation(
            op.name, tuple(map_operand(o, mapped) for o in op.operands), op.results, op.attributes, op.location
        )
        try:
            types = result_types(moved, sizes)
        except VerifyError:
            better = _fitting(moved, sizes.hints)
            if better is None:
                raise
            raise _Misfit(better) from None
        if len(types) != len(op.results) or not all(_agree(r.type, t) for r, t in zip(op.results, types, strict=True)):
            said = ", ".join(str(r.type) for r in op.results)
            raise VerifyError(
                f"{op.name} gives {', '.join(map(str, types))}, the graph says {said}", op=op.name, where=describe(op)
            )
        moved.results = tuple(Value(t, r.name) for r, t in zip(op.results, types, strict=True))
        values.update({id(old): new for old, new in zip(op.results, moved.results, strict=True)})
        out.ops.append(moved)
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out


def _agree(said: Type, found: Type) -> bool:
    """Whether what the graph says about a result leaves room for what was found: a symbol or ``?`` is no claim."""
    if not isinstance(said, TensorType) or not isinstance(found, TensorType):
        return said == found
    if said.dtype != found.dtype or said.rank != found.rank:
        return False
    pairs = zip(said.shape, found.shape, strict=True)
    return all(not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in pairs)
