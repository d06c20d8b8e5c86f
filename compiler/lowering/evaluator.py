"""The ``evaluator`` target: FlatIR run by the primitives' own evaluators, without code generation."""

from __future__ import annotations

from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.lowering.target import Kernel, Lowered, Target


def takes(op: Operation) -> str | None:
    return None if op.name.startswith("flat.") else f"{op.name} has no expansion to FlatIR"


def lower(graph: Graph) -> Lowered:
    def load() -> Kernel:
        from torchstone.compiler.ops.evaluate import evaluate_graph

        return lambda tensors: evaluate_graph(graph, tensors)

    return Lowered(load)


TARGET = Target("evaluator", takes, lower, schedules=True)
