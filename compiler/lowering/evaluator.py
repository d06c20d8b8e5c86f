"""The ``evaluator`` target: FlatIR run by the primitives' own evaluators, without code generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.lowering.target import Kernel, Lowered, Target
from torchstone.compiler.ops import PRIMITIVES


def takes(op: Operation) -> str | None:
    if not op.name.startswith("flat."):
        return f"{op.name} has no expansion to FlatIR"
    # The bodies of composites are what is to be held against eager.
    return f"{op.name}: the evaluator runs its body" if PRIMITIVES[op.name].composite else None


def lower(graph: Graph) -> Lowered:
    def load() -> Kernel:
        return lambda tensors: _run(graph, tensors)

    return Lowered(load)


def _run(graph: Graph, tensors: Sequence[Any]) -> tuple[Any, ...]:
    import torch

    from torchstone.compiler.runtime.interpreter import evaluate_graph

    with torch.no_grad():
        return unshared(evaluate_graph(graph, tensors), tensors)


def unshared(results: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return results that share no memory with an argument or with each other: evaluators may give views."""
    import torch

    held = {t.untyped_storage().data_ptr() for t in tensors if isinstance(t, torch.Tensor)}
    outputs = []
    for out in results:
        storage = out.untyped_storage().data_ptr()
        outputs.append(out.clone(memory_format=torch.contiguous_format) if storage in held else out.contiguous())
        held.add(storage)
    return tuple(outputs)


TARGET = Target("evaluator", takes, lower, schedules=True)
