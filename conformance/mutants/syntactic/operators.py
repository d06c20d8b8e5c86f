"""The mutation operators: from a node of a syntax tree to what might stand there by mistake.

Each yields the name of the operator and the node in place of the given one, which it leaves alone. What comes out is
the same for the same text, in the same order.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from keyword import iskeyword
from typing import Any, TypeAlias

from torchstone.conformance.mutants.syntactic.names import COMMUTATIVE, CONVERSIONS, other_of_its_kind

Proposal: TypeAlias = "tuple[str, ast.expr]"

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip

_SYMMETRIC = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_SEQUENCES = (ast.Tuple, ast.List, ast.ListComp, ast.Dict, ast.Set, ast.JoinedStr, ast.GeneratorExp)
_REFLECTION = frozenset(["isinstance", "issubclass", "getattr", "hasattr", "setattr", "print", "zip", "range"])
WRONG_DIGIT = 1 + 2.0**-10
"""A constant is multiplied by this: wrong in the fourth decimal digit."""


def of_expression(node: ast.expr, first: str = "") -> Iterator[Proposal]:
    """What might stand in place of an expression; ``first`` is the first parameter of the function around it."""
    match node:
        case ast.BinOp():
            yield from _of_arithmetic(node)
        case ast.Compare():
            yield from _of_comparison(node)
        case ast.BoolOp():
            yield from _of_boolean(node)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "operator", operand
        case ast.Constant():
            yield from _of_constant(node)
        case ast.Attribute(ctx=ast.Load()):
            if (other := other_of_its_kind(node.attr)) is not None:
                yield "name", _with(node, attr=f"{other}_" if iskeyword(other) else other)
        case ast.IfExp():
            yield "branch", _with(node, body=node.orelse, orelse=node.body)
        case ast.Call():
            yield from _of_call(node, first)
        case ast.Slice():
            pass
        case ast.Subscript(slice=ast.Constant(value=int(at))) if not isinstance(at, bool):
            yield "constant", _with(node, slice=ast.Constant(at + 1))
            if at:  # the last in place of the first is the same where there is but one
                yield "constant", _with(node, slice=ast.Constant(at - 1))
        case ast.Subscript(slice=ast.Slice() as bounds):
            for name in ("lower", "upper", "step"):
                if getattr(bounds, name) is not None:
                    yield "bound", _with(node, slice=_with(bounds, **{name: None}))


def of_condition(node: ast.expr) -> Iterator[Proposal]:
    """What might stand in place of the condition of a branch."""
    yield "branch", node.operand if _is_not(node) else ast.UnaryOp(ast.Not(), node)  # type: ignore[attr-defined]
    for value in (True, False):
        yield "branch", ast.Constant(value)


def of_filter(node: ast.expr) -> Iterator[Proposal]:
    """What might stand in place of the condition of a comprehension."""
    yield "branch", ast.Constant(True)


def of_augmented(node: ast.AugAssign) -> Iterator[tuple[str, ast.AugAssign]]:
    """What might stand in place of ``x += y``."""
    if not isinstance(node.value, _SEQUENCES):
        yield "operator", _with(node, op=ARITHMETIC[type(node.op)]())


def _of_arithmetic(node: ast.BinOp) -> Iterator[Proposal]:
    sides = (node.left, node.right)
    if any(isinstance(side, _SEQUENCES) or _is_text(side) for side in sides):
        return
    yield "operator", _with(node, op=ARITHMETIC[type(node.op)]())
    if not isinstance(node.op, _SYMMETRIC):
        yield "operands", _with(node, left=node.right, right=node.left)


def _of_comparison(node: ast.Compare) -> Iterator[Proposal]:
    for at, op in enumerate(node.ops):
        for other in COMPARISONS[type(op)]:
            yield "comparison", _with(node, ops=[*node.ops[:at], other(), *node.ops[at + 1 :]])


def _of_boolean(node: ast.BoolOp) -> Iterator[Proposal]:
    yield "boolean", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for at in range(len(node.values)):
        left = [*node.values[:at], *node.values[at + 1 :]]
        yield "boolean", left[0] if len(left) == 1 else _with(node, values=left)


def _of_constant(node: ast.Constant) -> Iterator[Proposal]:
    match node.value:
        case bool(value):
            yield "constant", ast.Constant(not value)
        case int(value):
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case float(value):
            yield "constant", ast.Constant(value * WRONG_DIGIT if value else 1.0)
            yield "constant", ast.Constant(-value if value else -1.0)
        case str(value):
            if (other := other_of_its_kind(value)) is not None:
                yield "name", ast.Constant(other)


def _of_call(node: ast.Call, first: str) -> Iterator[Proposal]:
    name = _last_name(node.func)
    if name not in _REFLECTION:
        yield from _of_operands(node, name, first)
    for at, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            yield "keyword", _with(node, keywords=[*node.keywords[:at], *node.keywords[at + 1 :]])
    given = [one for one in node.args if not (isinstance(one, ast.Name) and one.id == first)]
    if name in CONVERSIONS and given and not isinstance(given[0], ast.Starred):
        yield "conversion", given[0]


def _of_operands(node: ast.Call, name: str, first: str) -> Iterator[Proposal]:
    for at in range(len(node.args) - 1):
        one, other = node.args[at : at + 2]
        if _sort(one) != _sort(other) or ast.unparse(one) == ast.unparse(other):
            continue
        if (isinstance(one, ast.Name) and one.id == first) or (name in COMMUTATIVE and len(node.args) == 2):
            continue
        yield "operands", _with(node, args=[*node.args[:at], other, one, *node.args[at + 2 :]])


def _sort(node: ast.expr) -> object:
    """What an operand is by its looks: those of two sorts are not exchanged, that would end in a TypeError at once."""
    if isinstance(node, ast.Starred):
        return node
    if isinstance(node, ast.Constant):
        return type(node.value)
    return type(node) if isinstance(node, (*_SEQUENCES, ast.Lambda)) else ast.expr


def _with(node: Any, **fields: Any) -> Any:
    out = copy.copy(node)
    for name, value in fields.items():
        setattr(out, name, value)
    return out


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
