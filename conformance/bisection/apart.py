"""Primitives in kernels of their own: a graph run op by op, some of its ops as a target lowers them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.compiler.ir import Graph, Operation, TensorType, Value
from torchstone.compiler.ir.sizes import symbols_used
from torchstone.compiler.lowering.evaluator import lower as evaluated
from torchstone.compiler.lowering.evaluator import unshared
from torchstone.compiler.lowering.steps import is_host
from torchstone.compiler.lowering.target import Kernel, Lowered, Target
from torchstone.compiler.runtime.host_schedule import RunState
from torchstone.compiler.runtime.interpreter import evaluate_graph

# What a lowering may look at, and go by: these are made anew in the kernel of each op that uses them.
_SEEN = frozenset({"flat.constant", "flat.iota", "flat.broadcast"})


def lower_apart(target: Target, name: str = "") -> Callable[[Graph], Lowered]:
    """Return a lowering: ops of this name, or all, in kernels of their own, the rest by their evaluators.

    So are ops whose sizes are known at run time only: a kernel of one would have nothing to tell it the others' sizes.
    """

    def lower(graph: Graph) -> Lowered:
        def load() -> Kernel:
            producers = {id(r): op for op in graph.ops for r in op.results if op.name in _SEEN}
            chosen = [op for op in graph.ops if op.name not in _SEEN and name in ("", op.name) and _is_static(op)]
            alone = {id(op): _kernel(target, op, producers) for op in chosen}
            return lambda tensors: _run(graph, tensors, alone)

        return Lowered(load)

    return lower


def lower_copying(target: Target) -> Callable[[Graph], Lowered]:
    """Return a lowering: a kernel of the target copies the arguments, and evaluators go on."""

    def lower(graph: Graph) -> Lowered:
        def load() -> Kernel:
            copy = target.lower(Graph("copy", graph.args, [], tuple(graph.args))).load()
            rest = evaluated(graph).load()
            return lambda tensors: rest(copy(tensors))

        return Lowered(load)

    return lower


def _is_static(op: Operation) -> bool:

    values = [*op.values, *op.results]
    tensors = all(isinstance(value.type, TensorType) for value in values)
    return tensors and not is_host(op) and op.name != "flat.check" and not symbols_used(op)


def _kernel(target: Target, op: Operation, producers: dict[int, Operation]) -> tuple[list[Value], Kernel]:
    """The values that the kernel of an op is given, and the kernel."""

    ops: list[Operation] = []
    given: dict[int, Value] = {}

    def take(op: Operation) -> None:
        for value in op.values:
            made = producers.get(id(value))
            if made is None:
                given[id(value)] = value
            elif made not in ops:
                take(made)
        ops.append(op)

    take(op)
    args = list(given.values())
    return args, target.lower(Graph("alone", args, ops, op.results)).load()


def _run(graph: Graph, tensors: Sequence[Any], alone: dict[int, tuple[list[Value], Kernel]]) -> tuple[Any, ...]:

    def instead(op: Operation, state: RunState) -> bool:
        if id(op) not in alone:
            return False
        args, kernel = alone[id(op)]
        results = kernel([state.values[id(value)] for value in args])
        state.values.update({id(value): tensor for value, tensor in zip(op.results, results, strict=True)})
        return True

    with torch.no_grad():
        return unshared(evaluate_graph(graph, tensors, instead=instead), tensors)
