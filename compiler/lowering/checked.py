"""What targets that write an MLIR dialect share: checks are outputs, looked at after the run; no op is left unused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torchstone.compiler.diagnostics import check_error
from torchstone.compiler.ir import Expr, Graph, Operation, Value, map_operand
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.ir.graph import values_in
from torchstone.compiler.ir.sizes import bind_symbols


def outputs_of(graph: Graph) -> list[Value]:
    """Return the values among the outputs of a graph, each once."""
    return list({id(v): v for v in values_in(graph.outputs)}.values())


class CheckedKernel:
    """Calls the compiled function, raises for a check that failed, and puts literals among the outputs.

    ``graph`` is what ``checks_to_outputs`` gave, with the ``messages`` of its checks; ``outputs`` are what ``kernel``
    returns, in order.
    """

    def __init__(
        self, graph: Graph, outputs: Sequence[Value], messages: tuple[str, ...], kernel: Callable[..., Any]
    ) -> None:
        self.kernel = kernel
        self.messages = messages
        self.slots = {id(v): i for i, v in enumerate(outputs)}
        self.graph = graph

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        results = self.kernel(tensors)
        given: set[int] = set()

        def concrete(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                slot = self.slots[id(leaf)]
                again = slot in given
                given.add(slot)
                return results[slot].clone() if again else results[slot]  # results share no memory
            return evaluate(leaf, bind_symbols(self.graph, tensors)) if isinstance(leaf, Expr) else leaf

        outputs = tuple(map_operand(o, concrete) for o in self.graph.outputs)
        kept = len(outputs) - len(self.messages)
        for message, holds in zip(self.messages, outputs[kept:], strict=True):
            if not bool(holds):
                raise check_error(message)
        return outputs[:kept]


# No loops of their own.
_FREE = frozenset({"flat.constant", "flat.reshape", "flat.broadcast"})


def mean_work(graph: Graph) -> int | None:
    """Estimate the iterations of the mean loop nest of a graph; None where sizes are known at run time only."""
    ops = [op for op in graph.ops if op.results and op.name not in _FREE]
    if not ops or not all(v.tensor.is_static for op in ops for v in (*op.values, *op.results)):
        return None if ops else 0
    return sum(_iterations(op) for op in ops) // len(ops)


def _iterations(op: Operation) -> Any:
    elements = prod(op.results[0].shape)
    if op.name in ("flat.reduce", "flat.arg_reduce"):
        return prod(next(op.values).shape)
    if op.name == "flat.contract":
        a = next(op.values)
        return elements * prod(a.shape[d] for d in op.attributes["a_sum"])
    if op.name == "flat.convolution":
        _, weight, *_ = op.values
        return elements * prod(weight.shape[1:])
    return elements * prod(op.attributes.get("kernel", ()))


def drop_unused(function: Any) -> None:
    """Erase ops that nobody uses: constants written before it was known in which shape they are wanted."""
    for op in reversed(list(function.entry_block.operations)):
        if op.results and not any(list(r.uses) for r in op.results):
            op.operation.erase()
