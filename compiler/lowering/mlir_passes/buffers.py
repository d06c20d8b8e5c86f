"""After bufferization: allocations are freed, copies and arithmetic on bfloat16 rewritten."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.bfloat16 import round_each
from torchstone.compiler.mlir import Bindings

# Bytes of the stack that the small buffers of a function may take.
_STACK = 1 << 14


def finish_buffers(module: Any, provider: Bindings) -> set[str]:
    """Free the allocations of functions, rewrite copies and bfloat16, in place; return the names of all ops.

    A buffer allocated at the top of a function that returns nothing can be freed where it ends, and be on the stack if
    it is small: that takes a tenth of the code. MLIR's own pass follows who owns what through any control flow, and
    takes as long as all others on buffers: it is for the rest.
    """
    ops = by_name(module, provider)
    allocations = ops.get("memref.alloc", [])
    if all(_ends_with_function(op) for op in allocations):
        ops["memref.alloc"] = _to_stack(allocations, provider)
        for op in ops["memref.alloc"]:
            block = op.block
            with op.location, provider.ir.InsertionPoint(block.operations[len(block.operations) - 1]):
                provider.memref.DeallocOp(op.results[0])
    else:
        pipelines.run("deallocate", module, provider=provider)
        ops = by_name(module, provider)
    _lower_copies(ops.get("memref.copy", []), provider)
    round_each(ops, provider)
    return {name for name, found in ops.items() if found}


def _to_stack(allocations: list[Any], provider: Bindings) -> list[Any]:
    """Put the small ones on the stack, as long as there is room; return the others.

    It is where a function begins that LLVM takes an allocation for part of its frame.
    """
    others: list[Any] = []
    room: dict[Any, float] = {}
    for op in allocations:
        buffer, function = op.results[0], op.block
        left = room.get(function, _STACK) - _bytes(buffer.type, provider.ir)
        if left < 0:
            others.append(op)
            continue
        room[function] = left
        with op.location, provider.ir.InsertionPoint.at_block_begin(function):
            buffer.replace_all_uses_with(provider.memref.AllocaOp(buffer.type, [], []).result)
        op.erase()
    return others


def _bytes(memref: Any, ir: Any) -> float:
    """Return the size of a buffer, infinity when it is known at run time only."""
    if not memref.has_static_shape:
        return inf
    element = memref.element_type
    count = prod(memref.shape)
    if isinstance(element, ir.ComplexType):
        count, element = 2 * count, element.element_type
    return count * (8 if isinstance(element, ir.IndexType) else -(-element.width // 8))


def by_name(module: Any, provider: Bindings) -> dict[str, list[Any]]:
    """Return all ops of a module by their name, in order."""
    found: dict[str, list[Any]] = {}

    def visit(op: Any) -> Any:
        found.setdefault(op.name, []).append(op)
        return provider.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _ends_with_function(op: Any) -> bool:
    function = op.parent.operation
    if function.name != "func.func" or len(function.regions[0].blocks) != 1:
        return False
    return not function.attributes["function_type"].value.results


def finish_returned_buffers(module: Any, provider: Bindings) -> None:
    """Rewrite copies and bfloat16, in place, where allocations are freed already."""
    ops = by_name(module, provider)
    _lower_copies(ops.get("memref.copy", []), provider)
    round_each(ops, provider)


def _lower_copies(copies: list[Any], provider: Bindings) -> None:
    """Replace each ``memref.copy`` that a plain memcpy cannot do by a ``linalg.copy``.

    Between strided buffers it would call a runtime function that the wheel lacks.
    """
    for op in copies:
        source, target = op.operands
        if source == target:
            # What bufferization leaves of a result that is computed where it belongs.
            op.erase()
        elif not all(_identity(v.type, provider.ir) for v in op.operands):
            with op.context, op.location, provider.ir.InsertionPoint(op):
                provider.linalg.copy(source, outs=[target])
            op.erase()


def _identity(memref: Any, ir: Any) -> bool:
    return isinstance(memref.layout, ir.AffineMapAttr)
