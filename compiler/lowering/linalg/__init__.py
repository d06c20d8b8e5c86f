"""The ``linalg`` target: FlatIR to linalg on tensors, run by the CPU runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.lowering.mlir_passes.cpu import CPU
from torchstone.compiler.lowering.target import Lowered, Target
from torchstone.compiler.ops import PRIMITIVES


def takes(op: Operation) -> str | None:
    """Return None for an op this target lowers, else the reason why not."""
    build, elementwise, loop_fusion = _rules()
    if op.name not in PRIMITIVES:
        return f"{op.name} has no expansion to FlatIR"
    if PRIMITIVES[op.name].elementwise:
        return elementwise.takes(op.name.removeprefix("flat."), next(op.values).dtype)
    if op.name == "flat.scatter" and op.attributes["kind"] != "set":
        return elementwise.takes(op.attributes["kind"], op.result.dtype)
    if op.name in build.STRUCTURED or loop_fusion.is_fused(op):
        return None
    return f"{op.name}: no rule for the linalg target"


@cache
def _rules() -> tuple[Any, Any, Any]:
    """The modules that hold the rules, imported when they are needed: MLIR comes with them."""
    from torchstone.compiler.lowering.linalg import build, elementwise, loop_fusion

    return build, elementwise, loop_fusion


def lower(graph: Graph) -> Lowered:
    from torchstone.compiler.lowering.linalg.build import lower as lower_graph

    return lower_graph(graph)


TARGET = Target("linalg", takes, lower, schedules=True, pipelines=(CPU,))

__all__ = ["TARGET"]
