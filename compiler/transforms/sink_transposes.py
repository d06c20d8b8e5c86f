"""The pass ``sink_transposes``: transposes move past the ops that follow, meet, and cancel.

A target whose ops want another order of dims than PyTorch's gets a transpose before and after each. What lies between
two of them mostly works in any order: elementwise ops, and those whose dims can be renamed. So each transpose is moved
behind its users, where it meets the next one. One that moves only dims of size 1 is a reshape, and reshapes join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.ir import Graph, Operation, Shape, Value, map_operand, product
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.cse import eliminate_common_subexpressions
from torchstone.compiler.transforms.dce import eliminate_dead_code

Permutation = tuple[int, ...]


def sink_transposes(graph: Graph) -> Graph:
    """Return an equal graph with no more transposes, mostly with fewer."""
    if not any(op.name == "flat.transpose" for op in graph.ops):
        return graph
    sinking = _Sinking(graph)
    return eliminate_dead_code(eliminate_common_subexpressions(sinking.run()))


def _permuted(sizes: Sequence[Any], permutation: Permutation) -> tuple[Any, ...]:
    return tuple(sizes[p] for p in permutation)


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


class _Sinking:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.out = Graph(graph.name, graph.args)
        self.values: dict[int, Value] = {}
        self.made: dict[int, Operation] = {}  # by the id of the result
        self.b = Builder(self.out.ops)

    def run(self) -> Graph:
        for op in self.graph.ops:
            operands = tuple(map_operand(o, self.mapped) for o in op.operands)
            moved = Operation(op.name, operands, op.results, op.attributes, op.location)
            self.b.location = op.location
            start = len(self.out.ops)
            new = self._sunk(moved)
            if new is None:
                self.out.ops.append(moved)
            else:
                self.values[id(op.result)] = new
            self.made.update((id(r), o) for o in self.out.ops[start:] for r in o.results)
        self.out.outputs = tuple(map_operand(o, self.mapped) for o in self.graph.outputs)
        return self.out

    def mapped(self, leaf: Any) -> Any:
        return self.values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    def source(self, value: Value) -> tuple[Value, Permutation] | None:
        """Return what a value is the transpose of, and how; None when it is none."""
        op = self.made.get(id(value))
        if op is None or op.name != "flat.transpose":
            return None
        return next(op.values), op.attributes["permutation"]

    def transpose(self, x: Value, permutation: Permutation) -> Value:
        """Transpose, joined with the transpose that x is; a reshape where no two dims longer than 1 change places.

        A target may have no reshape to sizes of run time.
        """
        if (found := self.source(x)) is not None:
            x, permutation = found[0], _permuted(found[1], permutation)
        long = [p for p in permutation if x.shape[p] != 1]
        if long == sorted(long) and all(isinstance(size, int) for size in x.shape):
            return self.reshape(x, _permuted(x.shape, permutation))
        return self._remember(self.b.transpose(x, permutation))

    def reshape(self, x: Value, shape: Shape) -> Value:
        op = self.made.get(id(x))
        if op is not None and op.name == "flat.reshape":
            x = next(op.values)
        return self._remember(self.b.reshape(x, shape))

    def _remember(self, made: Value) -> Value:
        if self.out.ops and self.out.ops[-1].results[:1] == (made,):
            self.made[id(made)] = self.out.ops[-1]
        return made

    def _sunk(self, op: Operation) -> Value | None:
        """Return the result, built otherwise, or None for an op that stays as it is."""
        if len(op.results) != 1 or op.name not in PRIMITIVES:
            return None
        if op.name == "flat.transpose":
            return self.transpose(next(op.values), op.attributes["permutation"])
        if op.name == "flat.reshape":
            return self.reshape(next(op.values), op.result.shape)
        found = [source for v in op.values if (source := self.source(v)) is not None]
        if not found:
            return None
        permutation = found[0][1]
        if PRIMITIVES[op.name].elementwise:
            return self._elementwise(op, permutation)
        rule = _RENAMED.get(op.name)
        if rule is None or len(found) != len([v for v in op.values if v.rank == len(permutation)]):
            return None
        if any(other != permutation for _, other in found):
            return None
        return rule(self, op, [s[0] if (s := self.source(v)) else v for v in op.values], permutation)

    def _elementwise(self, op: Operation, permutation: Permutation) -> Value | None:
        sources = [self._as_source(v, permutation) for v in op.values]
        if any(s is None for s in sources):
            return None
        return self.back(op, [s() for s in sources if s is not None], permutation, op.attributes)

    def _as_source(self, value: Value, permutation: Permutation) -> Callable[[], Value] | None:
        """Return what builds the value as it is before the transpose, when that costs nothing."""
        found = self.source(value)
        if found is not None:
            return (lambda: found[0]) if found[1] == permutation else None
        op = self.made.get(id(value))
        if op is None or op.name not in ("flat.broadcast", "flat.constant"):
            return None
        shape = _permuted(value.shape, _inverse(permutation))
        if op.name == "flat.constant":
            number = op.attributes["value"]
            if isinstance(number, tuple):
                return None
            return lambda: self._remember(self.b.constant(value=number, shape=shape, dtype=value.dtype))
        x, dims = next(op.values), op.attributes["dims"]
        if product(x.shape) == product(value.shape):
            return None
        there = [permutation[d] for d in dims]
        order = tuple(sorted(range(x.rank), key=there.__getitem__))
        return lambda: self.b.broadcast(self.transpose(x, order), shape, tuple(sorted(there)))

    def back(self, op: Operation, operands: list[Value], permutation: Permutation, attributes: Any) -> Value:
        """Emit the op on what its operands are the transposes of, and transpose its result."""
        (made,) = self.b.emit(op.name.removeprefix("flat."), *operands, **attributes)
        return self.transpose(made, permutation)


def _reduce(s: _Sinking, op: Operation, operands: list[Value], permutation: Permutation) -> Value:
    gone = {permutation[d] for d in op.attributes["dims"]}
    kept = [p for p in permutation if p not in gone]
    out = s.b.reduce(operands[0], op.attributes["kind"], tuple(gone))
    return s.transpose(out, tuple(sorted(kept).index(p) for p in kept))


def _concat(s: _Sinking, op: Operation, operands: list[Value], permutation: Permutation) -> Value:
    return s.back(op, operands, permutation, {"dim": permutation[op.attributes["dim"]]})


def _each_dim(*names: str) -> Callable[..., Value]:
    """The rule of an op whose attributes have an entry for each dim."""

    def rule(s: _Sinking, op: Operation, operands: list[Value], permutation: Permutation) -> Value:
        to = _inverse(permutation)
        return s.back(op, operands, permutation, {name: _permuted(op.attributes[name], to) for name in names})

    return rule


def _reverse(s: _Sinking, op: Operation, operands: list[Value], permutation: Permutation) -> Value:
    dims = tuple(sorted(permutation[d] for d in op.attributes["dims"]))
    return s.back(op, operands, permutation, {"dims": dims})


def _broadcast(s: _Sinking, op: Operation, operands: list[Value], permutation: Permutation) -> Value | None:
    if op.result.rank != len(permutation):
        return None
    shape = _permuted(op.result.shape, _inverse(permutation))
    return s.back(op, operands, permutation, {"shape": shape, "dims": op.attributes["dims"]})


# Ops that name dims: how each is renamed when the operands of the transpose's rank are taken as they were before it.
_RENAMED: dict[str, Callable[..., Value | None]] = {
    "flat.reduce": _reduce,
    "flat.concat": _concat,
    "flat.slice": _each_dim("start", "limit", "stride"),
    "flat.pad": _each_dim("low", "high"),
    "flat.reverse": _reverse,
    "flat.broadcast": _broadcast,
}
