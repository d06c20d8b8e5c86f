"""Run a FlatIR graph with the primitives' evaluators: no code generation, the reference for every lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchstone.compiler.diagnostics import failed_check
from torchstone.compiler.ir import Expr, Graph, Operand, Operation, Value
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.ir.graph import map_operand
from torchstone.compiler.ops import PRIMITIVES, control
from torchstone.compiler.runtime.control import run_control
from torchstone.compiler.runtime.host_schedule import RunState, call


def evaluate_graph(
    graph: Graph,
    tensors: Sequence[Any],
    sizes: dict[str, int] | None = None,
    instead: Callable[[Operation, RunState], bool] = lambda op, state: False,
) -> tuple[Any, ...]:
    """Return the graph's outputs for these torch tensors, in order; ATen ops are run as library calls.

    ``sizes`` is told what its symbols are in this run. ``instead`` may run an op itself, and says whether it has.

    RuntimeError when a ``flat.check`` fails, GuardError when a size or a number is not what was compiled for.
    """
    state = RunState(graph, tensors)
    if sizes is not None:
        sizes.update(state.sizes)
        state.sizes = sizes

    def concrete(leaf: Operand) -> Any:
        if isinstance(leaf, Value):
            return state.values[id(leaf)]
        if isinstance(leaf, Graph):
            return _function(leaf)
        return evaluate(leaf, state.sizes) if isinstance(leaf, Expr) else leaf

    for op in graph.ops:
        if instead(op, state):
            continue
        if not op.name.startswith("flat."):
            call(op)(state)
            continue
        if PRIMITIVES[op.name] in control.EFFECTS:
            run_control(op, [concrete(v) for v in op.values], state.sizes)
            continue
        attributes: Mapping[str, Any] = {k: map_operand(v, concrete) for k, v in op.attributes.items()}
        if op.name == "flat.check":
            attributes = {**attributes, "message": failed_check(op)}
        out = PRIMITIVES[op.name].evaluate(*(concrete(o) for o in op.operands), **attributes)
        results = out if isinstance(out, tuple) else (out,)
        state.values.update({id(v): t for v, t in zip(op.results, results, strict=True)})
    return tuple(map_operand(o, concrete) for o in graph.outputs)


def _function(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """Return the branch of a ``flat.cond``, or a part of a ``flat.while``, as a function of tensors."""
    return lambda *tensors: evaluate_graph(graph, tensors)
