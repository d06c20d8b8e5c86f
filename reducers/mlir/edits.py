"""Edits of a module: each gives the text of a smaller module, which need not be valid. A trial decides that.

What an op gave to others is given by a new argument of the function around it: a value of the right type that comes
from nowhere, which no pass can fold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torchstone.compiler import mlir
from torchstone.reducers.mlir.context import shared_context

_SHAPED = re.compile(r"\b(tensor|memref|vector)<((?:(?:\?|\[?\d+\]?)x)+)")
_LENGTH = re.compile(r"\d+")
NARROWER = (("f64", "f32"), ("i64", "i32"), ("index", "i32"), ("bf16", "f32"), ("f16", "f32"), ("i32", "i1"))


def parsed(text: str) -> Any:
    """Return the module, which a trial has parsed before: a parser that crashes has done it there."""
    return mlir.bindings().ir.Module.parse(text, shared_context())


def printed(module: Any) -> str:
    """Return the module's text; without locations, and in its generic form where it is not valid."""
    return module.operation.get_asm(enable_debug_info=False).strip() + "\n"


def every_op(module: Any) -> list[Any]:
    """Return every op but the module, outer ones first."""
    ir = mlir.bindings().ir
    found: list[Any] = []

    def visit(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return [op.operation for op in found if op.operation != module.operation]


def removable(op: Any) -> bool:
    """Whether an op can be taken away as it stands: not a function's body, nor what ends a block."""
    last = op.block.operations[len(op.block.operations) - 1].operation
    return not (op == last and op.parent is not None and op.parent.operation.name != "builtin.module")


def count_ops(text: str) -> int:
    """Count the ops of a module that a trial has parsed."""
    module = parsed(text)  # it has to live as long as its ops are looked at
    return len(every_op(module))


def count_removable(text: str) -> int:
    """Count the ops that ``without_ops`` can leave out."""
    module = parsed(text)
    return sum(map(removable, every_op(module)))


def without_ops(text: str, numbers: Collection[int]) -> str:
    """Return the module without these removable ops, by their number in `every_op`, and what is inside of them."""
    module = parsed(text)
    gone = [op for at, op in enumerate(filter(removable, every_op(module))) if at in numbers]
    for op in reversed(gone):  # inner ones and users first
        for result in op.results:
            _replace(op, result)
        op.erase()
    return printed(module)


def _replace(op: Any, value: Any) -> None:
    """Let the users of a value take a new argument of the function around ``op`` instead."""
    if not list(value.uses):
        return
    function = _function(op)
    if function is None:
        raise Impossible
    value.replace_all_uses_with(_new_argument(function, value.type))


class Impossible(Exception):
    """An edit does not apply here."""


def _is_function(op: Any) -> bool:
    """Whether an op is a function with a body, of whichever dialect: passes turn ``func.func`` into others."""
    return "function_type" in op.attributes and len(op.regions) == 1 and bool(len(op.regions[0].blocks))


def _function(op: Any) -> Any:
    """Return the function around an op, None if another op between them lets no value in."""
    parent = op.parent
    while parent is not None and not _is_function(parent.operation):
        if parent.operation.name == "builtin.module":
            return None
        parent = parent.operation.parent
    return None if parent is None else parent.operation


def _new_argument(function: Any, kind: Any) -> Any:
    ir = mlir.bindings().ir
    entry = function.regions[0].blocks[0]
    with ir.Location.unknown(function.context):
        value = entry.add_argument(kind, ir.Location.unknown())
    _update_type(function)
    return value


def _update_type(function: Any, results: list[Any] | None = None) -> None:
    """Let a function's type be that of its entry block, and of the results if they are given."""
    ir = mlir.bindings().ir
    before = ir.TypeAttr(function.attributes["function_type"]).value
    inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    with function.context:
        if isinstance(before, ir.FunctionType):
            after = ir.FunctionType.get(inputs, list(before.results) if results is None else results)
        else:  # an LLVM function: its own type, of one result, which nobody changes
            after = ir.Type.parse(f"{_before_arguments(str(before))}({', '.join(map(str, inputs))})>")
        function.attributes["function_type"] = ir.TypeAttr.get(after)
    for name, length in (("arg_attrs", len(inputs)), ("res_attrs", None if results is None else len(results))):
        present = length is not None and name in function.attributes
        if present and len(ir.ArrayAttr(function.attributes[name])) != length:
            del function.attributes[name]


def _before_arguments(text: str) -> str:
    """Return what comes before the arguments in the type of an LLVM function: ``!llvm.func<i32 `` of one that gives
    an ``i32``."""
    depth = 0
    for at in reversed(range(len(text))):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if text[at] == "(" and not depth:
            return text[:at]
    raise Impossible


@dataclass(frozen=True)
class Edit:
    """``choices(op)`` counts the ways it can be made at an op, ``apply(op, which)`` makes one; false if it cannot."""

    choices: Callable[[Any], int]
    apply: Callable[[Any, int], bool]


def places(text: str, edit: Edit) -> list[tuple[int, int]]:
    """Return where an edit can be made, the number of an op and that of a choice: the last op first."""
    module = parsed(text)
    ops = every_op(module)
    return [(at, which) for at in reversed(range(len(ops))) for which in range(edit.choices(ops[at]))]


def edited(text: str, edit: Edit, at: int, which: int = 0) -> str:
    """Return the module with one edit made, nothing where it cannot be."""
    module = parsed(text)
    return printed(module) if edit.apply(every_op(module)[at], which) else ""


def _same_type(op: Any) -> list[Any]:
    if len(op.results) != 1 or not list(op.results[0].uses):
        return []
    return [operand for operand in op.operands if operand.type == op.results[0].type]


def _bypass(op: Any, which: int) -> bool:
    op.results[0].replace_all_uses_with(_same_type(op)[which])
    op.erase()
    return True


BYPASS = Edit(lambda op: len(_same_type(op)), _bypass)
"""Give the users of an op's result one of its operands of the same type."""


def _hoist(op: Any, which: int) -> bool:
    block = op.regions[which].blocks[0]
    for argument in block.arguments:
        _replace(op, argument)
    *body, end = [inner.operation for inner in block.operations]
    given = list(end.operands)
    for inner in body:
        inner.move_before(op)
    for result in op.results:
        same = [value for value in given if value.type == result.type]
        if same:
            result.replace_all_uses_with(same[0])
        else:
            _replace(op, result)
    op.erase()
    return True


def _regions(op: Any) -> int:
    """Count the regions of an op in a function, up to the first that is not one block."""
    if _is_function(op) or _function(op) is None:
        return 0
    single = [len(region.blocks) == 1 for region in op.regions]
    return single.index(False) if False in single else len(single)


HOIST = Edit(_regions, _hoist)
"""Put what is in a region of one block in its op's place; what the block's end gives are the op's results."""


def _end(op: Any) -> Any:
    """Return the ``func.return`` of a function of one block."""
    if op.name != "func.func" or len(op.regions[0].blocks) != 1:
        return None
    operations = op.regions[0].blocks[0].operations
    end = operations[len(operations) - 1].operation
    return end if end.name == "func.return" else None


def _drop_result(op: Any, which: int) -> bool:
    ir = mlir.bindings().ir
    end = _end(op)
    kept = [value for at, value in enumerate(end.operands) if at != which]
    ir.Operation.create("func.return", operands=kept, loc=end.location, ip=ir.InsertionPoint(end))
    end.erase()
    _update_type(op, [value.type for value in kept])
    return True


DROP_RESULT = Edit(lambda op: 0 if _end(op) is None else len(_end(op).operands), _drop_result)
"""Let a function of one block return one value less."""


def _unused(op: Any) -> list[int]:
    if not _is_function(op):
        return []
    return [at for at, argument in enumerate(op.regions[0].blocks[0].arguments) if not list(argument.uses)]


def _drop_arguments(op: Any, _: int) -> bool:
    for at in reversed(_unused(op)):
        op.regions[0].blocks[0].erase_argument(at)
    _update_type(op)
    return True


DROP_ARGUMENTS = Edit(lambda op: bool(_unused(op)), _drop_arguments)
"""Take away the arguments of a function that nothing uses."""


def _attributes(op: Any) -> list[str]:
    names = [getattr(found, "name", found) for found in op.attributes]  # older bindings give pairs, newer ones names
    return [name for name in names if name not in ("sym_name", "function_type")]


def _simplify_attribute(op: Any, which: int) -> bool:
    ir = mlir.bindings().ir
    name = _attributes(op)[which]
    value = op.attributes[name]
    if not isinstance(value, ir.DenseFPElementsAttr | ir.DenseIntElementsAttr):
        del op.attributes[name]
        return True
    if value.is_splat or not len(value):
        return False
    number = next(iter(value))
    element = value.type.element_type
    with op.context, ir.Location.unknown():
        first = ir.FloatAttr.get(element, number) if isinstance(number, float) else ir.IntegerAttr.get(element, number)
        op.attributes[name] = ir.DenseElementsAttr.get_splat(value.type, first)
    return True


SIMPLIFY_ATTRIBUTE = Edit(lambda op: len(_attributes(op)), _simplify_attribute)
"""Take away an attribute; let a list of numbers be one number."""


def lengths(text: str) -> list[str]:
    """Return the lengths of dims that its types have, the largest first; what is 1 is small already."""
    found = {number for shape in _SHAPED.finditer(text) for number in _LENGTH.findall(shape[2])}
    return sorted((number for number in found if int(number) > 1), key=int, reverse=True)


def with_length(text: str, old: str, new: str, everywhere: bool) -> str:
    """Return the text with a dim's length replaced in every type; ``everywhere``: in lists of numbers as well."""
    number = re.compile(rf"(?<!\d){old}(?!\d)")
    changed = _SHAPED.sub(lambda found: f"{found[1]}<{number.sub(new, found[2])}", text)
    if everywhere:
        changed = re.sub(rf"(?<=[\[, ]){old}(?=[\],])", new, changed)
    return changed


def narrowed(text: str) -> Iterator[str]:
    """Yield the text with one element type replaced by a simpler one."""
    for wide, narrow in NARROWER:
        if re.search(rf"(?<![\w%@]){wide}\b", text):
            yield re.sub(rf"(?<![\w%@]|x){wide}\b|(?<=x){wide}\b", narrow, text)
