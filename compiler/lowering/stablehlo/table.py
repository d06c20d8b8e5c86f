"""What a row of the StableHLO lowering is, and the dtypes that it moves and computes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dtypes import BY_NAME

BOOL = frozenset({"bool"})
SIGNED = frozenset({"int8", "int16", "int32", "int64"})
INT = SIGNED | {"uint8", "uint16", "uint32", "uint64"}
WIDE = frozenset({"float32", "float64"})
FLOAT = WIDE | {"float16", "bfloat16"}
COMPLEX = frozenset({"complex64", "complex128"})
ANY = BOOL | INT | FLOAT | COMPLEX
assert set(BY_NAME) >= ANY


@dataclass(frozen=True, slots=True)
class Rule:
    """How one primitive is lowered.

    ``dtypes`` are those of the last operand that it is lowered for. ``lower(emitter, op)`` emits, and returns the
    handle of the one result, or a list of all. ``takes(op)`` may refuse with a reason. Only ``dynamic`` rules take
    sizes that are not known.
    """

    name: str
    dtypes: frozenset[str]
    lower: Callable[[Any, Operation], Any]
    takes: Callable[[Operation], str | None] | None = None
    dynamic: bool = True

    def refuses(self, op: Operation) -> str | None:
        """Return why StableHLO does not take this op, or None."""
        for value in (*op.values, *op.results):
            if value.dtype.name not in ANY:
                return f"{op.name}: our StableHLO has no {value.dtype.name}"
            if not self.dynamic and not value.tensor.is_static:
                return f"{op.name}: our StableHLO takes no dynamic sizes here, got {value.type}"
        operands = list(op.values)
        if operands and operands[-1].dtype.name not in self.dtypes:
            return f"{op.name}: our StableHLO has no {self.name} of {operands[-1].dtype.name}"
        return self.takes(op) if self.takes else None
