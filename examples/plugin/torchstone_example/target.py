"""The target ``counting``: the evaluator, with a stage that counts the primitives of the program."""

from __future__ import annotations

from collections import Counter

from torchstone.compiler.ir import Graph
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.target import Lowered, Target

EVALUATOR = find_target("evaluator")


def lower(graph: Graph) -> Lowered:
    lowered = EVALUATOR.lower(graph)

    def count() -> str:
        counts = Counter(op.name for op in graph.ops)
        return "\n".join(f"{name} x{number}" for name, number in counts.most_common())

    return Lowered(lowered.load, lowered.texts | {"counting": count})


TARGET = Target("counting", EVALUATOR.takes, lower, schedules=False)
