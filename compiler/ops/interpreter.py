"""Run a FlatIR graph with the primitives' evaluators: no code generation, the reference for every lowering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torchstone.compiler.diagnostics import failed_check
from torchstone.compiler.ir import Expr, Graph, Operand, Operation, Value
from torchstone.compiler.ir.dims import evaluate as evaluate_dim
from torchstone.compiler.ir.graph import map_operand
from torchstone.compiler.ir.sizes import BIND
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops import PRIMITIVES, control

_measured: ContextVar[list[tuple[Operation, Any]] | None] = ContextVar("measured", default=None)


def bind_symbols(graph: Graph, tensors: Sequence[Any]) -> dict[str, int]:
    """Return the value of each symbol that stands alone as a size of an argument."""
    bound: dict[str, int] = {}
    for arg, tensor in zip(graph.args, tensors, strict=True):
        if isinstance(arg.type, TensorType):
            for dim, size in zip(arg.type.shape, tensor.shape, strict=True):
                if isinstance(dim, Expr) and str(dim).isidentifier():
                    bound.setdefault(str(dim), int(size))
    return bound


def run_control(op: Operation, tensors: Sequence[Any], bound: dict[str, int]) -> None:
    """Run a primitive of ``control.EFFECTS``; ``flat.bind`` gives a size a value that has none. Or GuardError."""
    if op.name == BIND and str(size := op.attributes["size"]).isidentifier():
        bound.setdefault(str(size), int(tensors[0]))
    concrete = {k: evaluate_dim(v, bound) if isinstance(v, Expr) else v for k, v in op.attributes.items()}
    if (
        op.name == "flat.specialize"
        and (found := _measured.get()) is not None
        and control.is_rounded(*tensors, **concrete)
    ):
        found.append((op, tensors[0].item()))
        return
    PRIMITIVES[op.name].evaluate(*tensors, **concrete)


@contextmanager
def measuring() -> Iterator[list[tuple[Operation, Any]]]:
    """In the block, note the floats that come out otherwise than a program was specialized to, and let runs go on."""
    token = _measured.set(found := [])
    try:
        yield found
    finally:
        _measured.reset(token)


def evaluate_graph(graph: Graph, tensors: Sequence[Any], sizes: dict[str, int] | None = None) -> tuple[Any, ...]:
    """Return the graph's outputs for these torch tensors, in order; ATen ops are run as library calls.

    ``sizes`` is told what its symbols are in this run.

    RuntimeError when a ``flat.check`` fails, GuardError when a size or a number is not what was compiled for.
    """
    from torchstone.compiler.runtime.host_schedule import State, call

    state = State(graph, tensors)
    if sizes is not None:
        sizes.update(state.sizes)
        state.sizes = sizes

    def concrete(leaf: Operand) -> Any:
        if isinstance(leaf, Value):
            return state.values[id(leaf)]
        return evaluate_dim(leaf, state.sizes) if isinstance(leaf, Expr) else leaf

    for op in graph.ops:
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
