"""The sign bit of a float, for targets that do not see its bits."""

from __future__ import annotations

from torchstone.compiler.diagnostics import NOT_TAKEN
from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.legalizations.common import Formula, legalization
from torchstone.compiler.transforms.rules import Expander


@legalization("copysign")
def copysign(b: Expander, x: Value, y: Value) -> Value:
    """Two zeros are told apart by 1 / y. Two NaNs are by nothing, and one of a chosen sign cannot be made: declined."""
    told = b.and_(b.eq(x, x), b.eq(y, y))
    held = b.reduce(told, "and", tuple(range(told.rank)))
    b.emit("check", held, message=f"{NOT_TAKEN}{b.op.location.notes[0] if b.op.location.notes else b.op.name} of NaN")
    size, sign = Formula(b, x).abs(), Formula(b, y)
    negative = (sign == 0.0).where(Formula(b, b.full_like(y, 1.0)) / sign, sign) < 0.0
    return negative.where(-size, size).value
