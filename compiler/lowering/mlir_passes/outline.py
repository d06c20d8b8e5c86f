"""Loop nests of a long function become functions of their own: what LLVM does grows faster than a function's length.

Works on linalg ops and loops over buffers, between the fusion of nests and their lowering. A view of a buffer is taken
again inside; buffers and numbers are passed.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.lowering.mlir_passes.destination import BARE
from torchstone.compiler.mlir import Bindings

# A function of more loop nests is split.
NESTS = 16
# On a function that was outlined.
_NEST = "torchstone.nest"
_BUFFERS = frozenset({"memref.alloc", "memref.alloca", "memref.get_global"})
_VIEWS = frozenset({"memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast", "arith.constant"})


def outline_nests(module: Any, provider: Bindings) -> None:
    """Outline the loop nests of the functions of a module that have many, in place."""
    known: dict[str, str] = {}
    for function in list(module.body.operations):
        if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
            continue
        block = function.operation.regions[0].blocks[0]
        nests = [op.operation for op in block.operations if _is_nest(op.operation)]
        if len(nests) <= NESTS:
            continue
        bare = BARE in function.operation.attributes
        name = function.operation.attributes["sym_name"].value
        for number, nest in enumerate(nests):
            call = _outline(nest, f"{name}_nest{number}", module, bare=bare, provider=provider)
            if call is not None:
                _share(*call, known, provider)


def keep_outlined(module: Any, provider: Bindings) -> None:
    """Tell LLVM, in a module of its dialect and in place, not to inline what was outlined."""
    with module.context:
        for op in module.body.operations:
            if _NEST in op.operation.attributes:
                del op.operation.attributes[_NEST]
                op.operation.attributes["no_inline"] = provider.ir.UnitAttr.get()


def _is_nest(op: Any) -> bool:
    return op.name.startswith("linalg.") or op.name == "scf.for"


def _is_plain(kind: Any, provider: Bindings) -> bool:
    """Say whether a value is passed as one pointer or number where buffers are passed without a descriptor."""
    ir = provider.ir
    if not isinstance(kind, ir.MemRefType):
        return True
    return kind.has_static_shape and 0 not in kind.shape and isinstance(kind.layout, ir.AffineMapAttr)


def _is_apart(value: Any, provider: Bindings) -> bool:
    """Say whether a value is no buffer, or is a buffer and no view of one."""
    owner = getattr(value.owner, "operation", None)
    return not isinstance(value.type, provider.ir.MemRefType) or owner is None or owner.name in _BUFFERS


def _share(function: Any, call: Any, known: dict[str, str], provider: Bindings) -> None:
    """Call a function of the same text, if there is one: the layers of a model are often of one size."""
    name = function.attributes["sym_name"].value
    text = function.get_asm(use_local_scope=True).replace(f"@{name}(", "@(", 1)
    if known.setdefault(text, name) != name:
        call.attributes["callee"] = provider.ir.FlatSymbolRefAttr.get(known[text], call.context)
        function.erase()


def _outline(nest: Any, name: str, module: Any, *, bare: bool, provider: Bindings) -> tuple[Any, Any] | None:
    """Return the new function and the call of it; None where the nest stays."""
    ir = provider.ir
    outside = _outside(nest, provider)
    views: list[Any] = []
    passed: list[Any] = []
    for value in outside:
        _trace(value, views, passed)
    if nest.results or not all(_is_apart(v, provider) for v in passed):
        return None
    if bare and not all(_is_plain(v.type, provider) for v in passed):
        return None
    with nest.context, nest.location:
        with ir.InsertionPoint(module.body):
            kind = ir.FunctionType.get([v.type for v in passed], [])
            function = provider.func.FuncOp(name, kind, visibility="private")
        function.attributes[_NEST] = ir.UnitAttr.get()
        if bare:
            function.attributes[BARE] = ir.UnitAttr.get()
            # Each buffer is passed once, and all are apart.
            own = [{"llvm.noalias": ir.UnitAttr.get()} if isinstance(v.type, ir.MemRefType) else {} for v in passed]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(attributes) for attributes in own])
        block = function.add_entry_block()
        with ir.InsertionPoint(nest):
            call = provider.func.CallOp([], name, passed)
        known = list(zip(passed, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for view in views:
                clone = view.clone().operation
                _replace(clone, known)
                known += zip(view.results, clone.results, strict=True)
            end = provider.func.ReturnOp([])
        nest.move_before(end)
        _replace_all(nest, known, provider)
    return function.operation, call.operation


def _outside(nest: Any, provider: Bindings) -> list[Any]:
    """Return the values that an op, or one inside it, uses and that are defined before it."""
    home = nest.block
    found: list[Any] = []

    def visit(op: Any) -> Any:
        for value in op.operands:
            owner = value.owner
            if (
                owner if isinstance(owner, provider.ir.Block) else owner.operation.block
            ) == home and value not in found:
                found.append(value)
        return provider.ir.WalkResult.ADVANCE

    nest.walk(visit)
    return found


def _trace(value: Any, views: list[Any], passed: list[Any]) -> None:
    """Add what defines a value: ops that are taken again, in order, and values that are passed."""
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name not in _VIEWS:
        if value not in passed:
            passed.append(value)
        return
    if owner not in views:
        for operand in owner.operands:
            _trace(operand, views, passed)
        views.append(owner)


def _replace(op: Any, known: list[tuple[Any, Any]]) -> None:
    for position, operand in enumerate(op.operands):
        for old, new in known:
            if operand == old:
                op.operands[position] = new
                break


def _replace_all(nest: Any, known: list[tuple[Any, Any]], provider: Bindings) -> None:
    def visit(op: Any) -> Any:
        _replace(op, known)
        return provider.ir.WalkResult.ADVANCE

    nest.walk(visit)
