"""Primitives of the host: they take a value or a size out of a run, and decide whether it goes on."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir.dims import Dim, Expr
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}


def _bind_infer(count: TensorType, *, size: Dim) -> tuple[TensorType, ...]:
    check(count.rank == 0 and count.dtype.is_int, "bind", f"takes a 0-d integer, got {count}")
    return ()


def _bind(count: Any, *, size: int) -> tuple[()]:
    if int(count) != size:
        raise GuardError(f"a size was compiled to be {size}, and is {int(count)}")
    return ()


def _require_infer(*, left: Dim, right: Dim, relation: str) -> tuple[TensorType, ...]:
    check(relation in RELATIONS, "require", f"relation must be one of {', '.join(RELATIONS)}, got {relation}")
    check(isinstance(left, Expr | int) and isinstance(right, Expr | int), "require", "compares sizes")
    return ()


def _require(*, left: int, right: int, relation: str) -> tuple[()]:
    holds = {"eq": left == right, "ne": left != right, "lt": left < right, "le": left <= right}[relation]
    if not holds:
        raise GuardError(f"the program was compiled for {left} {RELATIONS[relation]} {right}")
    return ()


def _specialize_infer(x: TensorType, *, value: Any) -> tuple[TensorType, ...]:
    check(x.rank == 0, "specialize", f"takes one number, got {x}")
    return ()


def _specialize(x: Any, *, value: Any) -> tuple[()]:
    got = x.item()
    if got != value and not (got != got and value != value):
        raise GuardError(f"the program was compiled for the value {value}, and it is {got}")
    return ()


ROWS = (
    Primitive(
        "bind",
        "Let a symbol that no size is called yet be this 0-d integer; of any other size, GuardError unless it is it.",
        1, _bind_infer, _bind, ("size",),
    ),
    Primitive(
        "require",
        "GuardError unless two sizes compare so: what the program takes for granted about sizes known at run time.",
        0, _require_infer, _require, ("left", "right", "relation"),
    ),
    Primitive(
        "specialize",
        "GuardError unless a 0-d tensor has the value that the program was specialized to.",
        1, _specialize_infer, _specialize, ("value",),
    ),
)  # fmt: skip
