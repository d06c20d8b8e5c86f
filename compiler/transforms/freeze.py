"""The pass ``freeze``: what depends on arguments that stay as they are is computed once, ahead of all runs."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from torchstone.compiler.ir import Graph, Operation, Value, map_operand, values_in
from torchstone.compiler.ops import PRIMITIVES, control
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.dce import eliminate_dead_code


@dataclass(slots=True)
class Frozen:
    """A graph whose arguments are those of ``kept``, by their place before, then what ``prologue`` gives.

    The arguments of the prologue are those that stay, in order.
    """

    graph: Graph
    prologue: Graph
    kept: list[int] = field(default_factory=list)


def freeze(graph: Graph, stays: Set[int]) -> Frozen:
    """Split a graph of static sizes by what depends on the arguments at these places alone.

    A parameter that an op repeats along other dims is given its full rank ahead, and repeated in place: memory is read
    many times sooner than it is made. What no argument is needed for is left to the graph.
    """
    known = {id(graph.args[place]) for place in stays}
    free: set[int] = set()  # needs no argument
    ahead: list[Operation] = []
    later: list[Operation] = []
    for op in graph.ops:
        if not _is_pure(op) or not all(v.tensor.is_static for v in (*op.values, *op.results)):
            later.append(op)
        elif all(id(v) in free for v in op.values):
            free.update(id(r) for r in op.results)
            later.append(op)
        elif not all(id(v) in known or id(v) in free for v in op.values):
            later.append(op)
        elif op.name == "flat.broadcast" and _count(op.result) > _count(next(op.values)):
            ahead.append(_aligned(op))
            known.add(id(ahead[-1].result))
            later.append(_repeated(op, ahead[-1].result))
        else:
            ahead.append(op)
            known.update(id(r) for r in op.results)
    # What is left uses some of it; constants that both sides use are made on both.
    wanted = {id(v): v for op in later for v in op.values if id(v) in known}
    wanted |= {id(v): v for v in values_in(graph.outputs) if id(v) in known}
    made = list(wanted.values())
    kept = [place for place in range(len(graph.args)) if place not in stays]
    shared = [op for op in later if op.results and all(id(r) in free for r in op.results)]
    staying = [graph.args[place] for place in sorted(stays)]
    prologue = Graph(f"{graph.name}_ahead", staying, [*shared, *ahead], tuple(made))
    names = {id(arg): arg.name for arg in graph.args}
    renamed = {id(v): Value(v.type, names.get(id(v), f"w{i}")) for i, v in enumerate(made)}
    main = Graph(graph.name, [*(graph.args[place] for place in kept), *renamed.values()])

    def mapped(leaf: Any) -> Any:
        return renamed.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    for op in later:
        operands = tuple(map_operand(o, mapped) for o in op.operands)
        main.ops.append(Operation(op.name, operands, op.results, op.attributes, op.location))
    main.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return Frozen(eliminate_dead_code(main), eliminate_dead_code(prologue), kept)


def _is_pure(op: Operation) -> bool:
    primitive = PRIMITIVES.get(op.name)
    return primitive is not None and primitive not in control.ROWS and bool(op.results) and not op.graphs


def _count(value: Value) -> Any:
    count: Any = 1
    for size in value.shape:
        count *= size
    return count


def _aligned(op: Operation) -> Operation:
    """The operand of a broadcast with a dim of size 1 for each that it lacks."""
    (x,), ops = op.values, []
    shape: list[Any] = [1] * op.result.rank
    for size, dim in zip(x.shape, op.attributes["dims"], strict=True):
        shape[dim] = size
    Builder(ops, op.location).emit("reshape", x, shape=tuple(shape))
    return ops[0]


def _repeated(op: Operation, aligned: Value) -> Operation:
    attributes = {**op.attributes, "dims": tuple(range(op.result.rank))}
    return Operation(op.name, (aligned,), op.results, attributes, op.location)
