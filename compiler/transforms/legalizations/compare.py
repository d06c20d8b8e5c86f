"""Comparisons, and logic on bools, from the few that a target has. NaN makes every comparison but ``ne`` false."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.legalizations.common import legalization
from torchstone.compiler.transforms.rules import Declined, Expander


@legalization("eq")
def eq(b: Expander, x: Value, y: Value) -> Value:
    """Of bools: not (x xor y)."""
    if not x.dtype.is_bool:
        raise Declined
    return b.not_(b.xor(x, y))


@legalization("ne")
def ne(b: Expander, x: Value, y: Value) -> Value:
    """not (x == y), true for NaN; of bools x xor y."""
    return b.xor(x, y) if x.dtype.is_bool else b.not_(b.eq(x, y))


@legalization("lt")
def lt(b: Expander, x: Value, y: Value) -> Value:
    return b.gt(y, x)


@legalization("le")
def le(b: Expander, x: Value, y: Value) -> Value:
    return b.ge(y, x)


@legalization("ge")
def ge(b: Expander, x: Value, y: Value) -> Value:
    """x > y or x == y: not ``not (x < y)``, which would be true for NaN."""
    return b.or_(b.gt(x, y), b.eq(x, y))
