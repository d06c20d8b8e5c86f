"""Before bufferization, for modules whose elementwise ops MLIR's own passes fuse: what those leave behind."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.lowering.mlir_passes.buffers import by_name
from torchstone.compiler.mlir import Bindings


def drop_idle_nests(module: Any, provider: Bindings) -> None:
    """Erase loop nests that give nothing, in place: fusion leaves those whose bodies call a function of C's library."""
    for op in reversed(by_name(module, provider).get("linalg.generic", [])):
        if not op.attributes["operandSegmentSizes"][1]:
            op.erase()


def separate_empty_tensors(module: Any, provider: Bindings) -> None:
    """Give each op that writes into a ``tensor.empty`` one of its own, in place.

    Common subexpressions are one op, and bufferization compares all uses of one with each other: 360 of them took 15 of
    the 20 seconds that the whole program took.
    """
    for op in by_name(module, provider).get("tensor.empty", []):
        for use in list(op.results[0].uses)[1:]:
            own = op.clone(ip=provider.ir.InsertionPoint(use.owner))
            use.owner.operation.operands[use.operand_number] = own.results[0]
