"""The backend contract: what a graph promises to a lowering."""

from __future__ import annotations

from collections.abc import Callable

from torchstone.compiler.diagnostics import VerifyError, describe
from torchstone.compiler.ir import Graph, Operation, PrimType, TensorType, Value
from torchstone.compiler.ir.sizes import BIND, symbols_used
from torchstone.compiler.ops.verifier import verify_graph


def verify(graph: Graph, takes: Callable[[Operation], str | None]) -> None:
    """Raise VerifyError, naming property, op and place, unless the graph keeps the contract.

    Value semantics (no op writes to an operand), known rank, sizes and dtype of every tensor, every symbol bound before
    a primitive uses it, and every op one that the target takes. The IR's own rules are checked first.
    """
    verify_graph(graph)
    for arg in graph.args:
        _known(arg, "an argument")
    bound = {s for arg in graph.args if isinstance(arg.type, TensorType) for s in arg.type.symbols}
    for op in graph.ops:
        used = symbols_used(op)
        if op.name.startswith("flat.") and op.name != BIND and not used <= bound:
            names = ", ".join(sorted(used - bound))
            raise VerifyError(f"{op.name} uses the size {names}, which nothing binds", op=op.name, where=describe(op))
        bound |= used
        if op.name.startswith("aten.") and _writes(op.name):
            raise VerifyError(
                f"{op.name} writes in place: the contract wants value semantics", op=op.name, where=describe(op)
            )
        for result in op.results:
            if not (isinstance(result.type, PrimType) and result.type.name == "none"):
                _known(result, f"a result of {op.name}", op)
        for nested in op.graphs.values():
            verify(nested, takes)
        refusal = takes(op)
        if refusal is not None:
            raise VerifyError(f"{op.name} is not in the target's legal set: {refusal}", op=op.name, where=describe(op))


def _writes(name: str) -> bool:
    """Whether an ATen name follows PyTorch's spelling of in-place and out ops: ``add_``, ``add.out``."""
    packet, _, overload = name.removeprefix("aten.").partition(".")
    return (packet.endswith("_") and not packet.endswith("__")) or overload.endswith("out")


def _known(value: Value, what: str, op: Operation | None = None) -> None:
    if isinstance(value.type, PrimType):
        return
    if any(d is None for d in value.tensor.shape):
        raise VerifyError(f"{what} has an unknown size: {value.type}", where=describe(op) if op else "")
