"""Arithmetic on bfloat16 is done in float32, each result rounded to bfloat16.

MLIR's own emulation lets a conversion meet the one back (``fastmath<contract>``): of a chain of ops it rounds the last.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.mlir import Bindings

_COMPUTES = tuple(
    f"arith.{name}"
    for name in (
        "addf", "subf", "mulf", "divf", "remf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf", "cmpf",
        "sitofp", "uitofp", "fptosi", "fptoui",
    )
)  # fmt: skip


def round_each(ops: dict[str, list[Any]], provider: Bindings) -> None:
    """Convert the bfloat16 operands and results of arithmetic among ``ops``, by their name, in place."""
    for name in _COMPUTES:
        for op in ops.get(name, ()):
            types = {value.type for value in (*op.operands, *op.results)}
            wide = {kind: _widened(kind, provider.ir) for kind in types}
            if any(wide.values()):
                _convert(op, wide, provider)


def _widened(kind: Any, ir: Any) -> Any:
    """Return float32 for bfloat16, of a scalar or a vector; None for any other type."""
    if isinstance(kind, ir.BF16Type):
        return ir.F32Type.get(kind.context)
    if isinstance(kind, ir.VectorType) and isinstance(kind.element_type, ir.BF16Type):
        return ir.VectorType.get(kind.shape, ir.F32Type.get(kind.context))
    return None


def _convert(op: Any, wide: dict[Any, Any], provider: Bindings) -> None:
    with op.location, provider.ir.InsertionPoint(op):
        for index, value in enumerate(op.operands):
            if wide[value.type]:
                op.operands[index] = provider.arith.extf(wide[value.type], value)
    result = op.results[0]
    narrow, uses = result.type, list(result.uses)
    if not wide[narrow]:
        return
    result.set_type(wide[narrow])
    with op.location, provider.ir.InsertionPoint.after(op):
        rounded = provider.arith.truncf(narrow, result)
    for use in uses:
        use.owner.operation.operands[use.operand_number] = rounded
