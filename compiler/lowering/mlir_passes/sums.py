"""Makes the reductions that upstream's lowerings to linalg leave right: where they start, and in what they add up."""

from __future__ import annotations

from math import inf
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.mlir_passes import pipelines

# What ``widen`` looks at is in one form, ``linalg.generic``; what it leaves is elementwise arithmetic on tensors.
GENERALIZE = "func.func(linalg-generalize-named-ops)"
ELEMENTWISE = "func.func(convert-elementwise-to-linalg)"


def operations(module: Any, *names: str) -> list[Any]:
    """Return the operations of these names, of any without names, in the functions of a module, in order."""
    found = []
    for function in module.body.operations:
        for block in function.regions[0].blocks:
            found.extend(op.operation for op in block.operations if not names or op.operation.name in names)
    return found


def widen(module: Any) -> None:
    """Make reductions right, in place.

    - A sum of float32, of products too, is kept in float64 and rounded once. Upstream rounds after every element.
    - A maximum starts at -inf, a minimum at inf. Upstream starts at the least, or largest, finite float.
    """
    with mlir.context():
        pipelines.run_text(GENERALIZE, module, label="widen")
        for op in operations(module, "linalg.generic"):
            if any("reduction" in str(kind) for kind in op.attributes["iterator_types"]) and len(op.results) == 1:
                _widen(op)
        pipelines.run_text(ELEMENTWISE, module, label="widen")


def _widen(op: Any) -> None:
    ir = mlir.ir
    block = op.regions[0].blocks[0]
    step = list(block.operations)[-1].operands[0].owner
    step = getattr(step, "operation", None)
    if step is None or not isinstance(op.results[0].type.element_type, ir.FloatType):
        return
    with op.location, ir.InsertionPoint(op):
        if step.name in ("arith.maximumf", "arith.minimumf"):
            _start(op, -inf if step.name == "arith.maximumf" else inf)
        elif step.name == "arith.addf" and isinstance(op.results[0].type.element_type, ir.F32Type):
            _sum(op)


def _start(op: Any, bound: float) -> None:
    """Let a reduction start at this number, where it starts at one that fills a tensor."""
    ir = mlir.ir
    fill = getattr(op.operands[len(op.operands) - 1].owner, "operation", None)
    if fill is None or fill.name != "linalg.generic" or len(fill.operands) != 2:
        return
    if not isinstance(fill.operands[0].type, ir.FloatType):
        return
    new = mlir.arith.ConstantOp(fill.operands[0].type, ir.FloatAttr.get(fill.operands[0].type, bound))
    with ir.InsertionPoint(fill):
        new.operation.move_before(fill)
    fill.operands[0] = new.result


def _sum(op: Any) -> None:
    """Replace a sum of float32 by one in float64, whose result is rounded."""
    ir, double = mlir.ir, mlir.ir.F64Type.get()
    narrow = op.results[0].type
    wide = ir.RankedTensorType.get(narrow.shape, double)
    start = mlir.arith.extf(wide, op.operands[len(op.operands) - 1])
    new = op.clone()
    new.operands[len(new.operands) - 1] = start
    new.results[0].set_type(wide)
    block = new.regions[0].blocks[0]
    block.arguments[len(block.arguments) - 1].set_type(double)
    *_, end = block.operations
    step = end.operands[0].owner.operation
    total = block.arguments[len(block.arguments) - 1]
    (term,) = (v for v in step.operands if v != total)
    with ir.InsertionPoint(end):
        product = getattr(term.owner, "operation", None)  # None: an element itself
        if product is not None and product.name == "arith.mulf":
            term = mlir.arith.mulf(*(mlir.arith.extf(double, v) for v in product.operands))
        else:
            term = mlir.arith.extf(double, term)
        end.operands[0] = mlir.arith.addf(total, term)
    step.erase()
    if product is not None and not list(product.results[0].uses):
        product.erase()
    op.results[0].replace_all_uses_with(mlir.arith.truncf(narrow, new.results[0]))
    op.erase()
