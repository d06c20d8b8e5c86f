"""Edits of a module: each gives the text of a smaller module, which need not be valid. A trial decides that.

What an op gave to others is given by a new argument of the function around it: a value of the right type that comes
from nowhere, which no pass can fold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any

from torchstone.compiler import mlir
from torchstone.reducers.mlir.context import new_context

_SHAPED = re.compile(r"\b(tensor|memref|vector)<((?:(?:\?|\[?\d+\]?)x)+)")
_LENGTH = re.compile(r"\d+")
NARROWER = (("f64", "f32"), ("i64", "i32"), ("index", "i32"), ("bf16", "f32"), ("f16", "f32"), ("i32", "i1"))


@cache
def _context() -> Any:
    return new_context()


def parsed(text: str) -> Any:
    """Return the module, which a trial has parsed before: a parser that crashes has done it there."""
    return mlir.bindings().ir.Module.parse(text, _context())


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


def _replace(op: Any, result: Any) -> None:
    """Let the users of a result take a new argument of the function instead."""
    if not list(result.uses):
        return
    function = _function(op)
    if function is None:
        raise Impossible
    result.replace_all_uses_with(_new_argument(function, result.type))


class Impossible(Exception):
    """An edit does not apply here."""


def _function(op: Any) -> Any:
    """Return the ``func.func`` around an op, None if another op between them lets no value in."""
    parent = op.parent
    while parent is not None and parent.operation.name != "func.func":
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
    outputs = list(before.results) if results is None else results
    with function.context:
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))
    for name, length in (("arg_attrs", len(inputs)), ("res_attrs", len(outputs))):
        if name in function.attributes and len(ir.ArrayAttr(function.attributes[name])) != length:
            del function.attributes[name]


Edit = Callable[[Any, int], bool]
"""Changes a parsed module at its op of this number; false if there is nothing to change."""


def edited(text: str, edit: Edit, number: int) -> str:
    """Return the module with one edit at one op, nothing where it does not apply."""
    module = parsed(text)
    ops = every_op(module)
    return printed(module) if edit(ops[number], number) else ""


def bypass(which: int) -> Callable[[Any, int], bool]:
    """Give the users of an op's result its operand of this number, counted among those of the same type."""

    def edit(op: Any, _: int) -> bool:
        if len(op.results) != 1 or not list(op.results[0].uses):
            return False
        same = [operand for operand in op.operands if operand.type == op.results[0].type]
        if which >= len(same):
            return False
        op.results[0].replace_all_uses_with(same[which])
        op.erase()
        return True

    return edit


def hoist(op: Any, _: int) -> bool:
    """Put what is in a region of one block in its op's place; what the block's end gives are the op's results."""
    if op.name == "func.func" or not op.regions:
        return False
    for region in op.regions:
        if len(region.blocks) != 1:
            continue
        block = region.blocks[0]
        for argument in block.arguments:
            function = _function(op)
            if function is None:
                raise Impossible
            argument.replace_all_uses_with(_new_argument(function, argument.type))
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
    return False


def drop_result(which: int) -> Edit:
    """Let a function of one block return one value less."""

    def edit(op: Any, _: int) -> bool:
        if op.name != "func.func" or len(op.regions[0].blocks) != 1:
            return False
        end = op.regions[0].blocks[0].operations[len(op.regions[0].blocks[0].operations) - 1].operation
        if end.name != "func.return" or which >= len(end.operands):
            return False
        ir = mlir.bindings().ir
        kept = [value for at, value in enumerate(end.operands) if at != which]
        ir.Operation.create("func.return", operands=kept, loc=end.location, ip=ir.InsertionPoint(end))
        end.erase()
        _update_type(op, [value.type for value in kept])
        return True

    return edit


def drop_arguments(op: Any, _: int) -> bool:
    """Take away the arguments of a function that nothing uses."""
    if op.name != "func.func" or not op.regions[0].blocks:
        return False
    entry = op.regions[0].blocks[0]
    unused = [at for at, argument in enumerate(entry.arguments) if not list(argument.uses)]
    for at in reversed(unused):
        entry.erase_argument(at)
    _update_type(op)
    return bool(unused)


def drop_attribute(which: int) -> Edit:
    """Take away an op's attribute of this number, or make a list of numbers in it one number."""

    def edit(op: Any, _: int) -> bool:
        names = [attribute.name for attribute in op.attributes]
        if which >= len(names):
            return False
        ir = mlir.bindings().ir
        value = op.attributes[names[which]]
        if ir.DenseElementsAttr.isinstance(value):
            return _one_number(op, names[which], ir.DenseElementsAttr(value))
        if names[which] in ("sym_name", "function_type"):
            return False
        del op.attributes[names[which]]
        return True

    return edit


def _one_number(op: Any, name: str, value: Any) -> bool:
    if value.is_splat or not len(value):
        return False
    ir = mlir.bindings().ir
    first = next(iter(value))
    element = value.type.element_type
    with op.context:
        number = ir.FloatAttr.get(element, first) if isinstance(first, float) else ir.IntegerAttr.get(element, first)
        op.attributes[name] = ir.DenseElementsAttr.get_splat(value.type, number)
    return True


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
