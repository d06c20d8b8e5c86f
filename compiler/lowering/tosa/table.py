"""What a row of the TOSA lowering is, and the dtypes and limits of the TOSA level it is validated against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir.dtypes import BY_NAME

# TOSA 1.1, level 8K.
MAX_RANK = 6

# Dtypes TOSA moves around. Its integers have no sign, so the unsigned ones travel as their bits.
MOVABLE = frozenset(
    {
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
        "float32",
    }
)  # fmt: skip


def names(*dtypes: str) -> frozenset[str]:
    """Return a set of dtype names; KeyError for one that does not exist."""
    return frozenset(BY_NAME[d].name for d in dtypes)


@dataclass(frozen=True, slots=True)
class TosaRule:
    """How one primitive is lowered.

    ``dtypes`` are the operand dtypes TOSA computes in; none named means every movable one. ``lower(emitter, op)`` emits
    and returns the handle of the one result. ``takes(op)`` may refuse with a reason. Only ``dynamic`` rules take sizes
    that are not known.
    """

    name: str
    dtypes: frozenset[str]
    lower: Callable[[Any, Operation], Any]
    takes: Callable[[Operation], str | None] | None = None
    dynamic: bool = False

    def refuses(self, op: Operation) -> str | None:
        """Return why TOSA does not take this op, or None."""
        values = [v for v in (*op.values, *op.results) if isinstance(v, Value)]
        for value in values:
            if value.dtype.name not in MOVABLE:
                return f"{op.name}: TOSA has no {value.dtype.name}"
            if value.rank > MAX_RANK:
                return f"{op.name}: TOSA level 8K has at most {MAX_RANK} dims, got {value.type}"
            if not self.dynamic and not value.tensor.is_static:
                return f"{op.name}: TOSA takes no dynamic sizes here, got {value.type}"
        operands = list(op.values)
        if self.dtypes and operands and operands[-1].dtype.name not in self.dtypes:
            return f"{op.name}: TOSA has no {self.name} of {operands[-1].dtype.name}"
        return self.takes(op) if self.takes else None
