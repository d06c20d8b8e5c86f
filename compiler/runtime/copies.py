"""``memref.copy`` between strided buffers calls a runtime function the wheel lacks: make a loop nest of it instead."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.runtime.mlir import Bindings


def lower_copies(module: Any, provider: Bindings) -> None:
    """Replace, in place, each ``memref.copy`` that a plain memcpy cannot do by a ``linalg.copy``."""
    ir = provider.ir
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "memref.copy" and not all(_identity(v.type, ir) for v in op.operands):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        source, target = op.operands
        with module.context, op.location, ir.InsertionPoint(op):
            provider.linalg.copy(source, outs=[target])
        op.erase()


def _identity(memref: Any, ir: Any) -> bool:
    return isinstance(memref.layout, ir.AffineMapAttr)
