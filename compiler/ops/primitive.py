"""What a FlatIR primitive is, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.diagnostics import VerifyError, did_you_mean
from torchstone.compiler.ir.types import TensorType

Infer = Callable[..., tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class Primitive:
    """One FlatIR op.

    ``infer(*operand_types, **attributes)`` returns the result types or raises ``VerifyError`` with the offending
    values; it is the shape and dtype function, and the validity check. ``evaluate(*tensors, **attributes)`` runs the
    op on torch tensors, attributes holding no symbols any more; a graph among them is given as a function of tensors.
    ``arity`` None means any number of operands.
    ``elementwise`` ops take operands of one shape and give that shape.
    ``composite`` ones have a body of others, for targets that lack them.
    """

    name: str
    doc: str
    arity: int | None
    infer: Infer
    evaluate: Callable[..., Any]
    attributes: tuple[str, ...] = ()
    elementwise: bool = False
    composite: bool = False

    @property
    def op(self) -> str:
        """The name in the IR."""
        return f"flat.{self.name}"


class PrimitiveRegistry(dict[str, Primitive]):
    """Primitives by IR name (``flat.add``); a second row of the same name is an error."""

    def add(self, *rows: Primitive) -> None:
        for row in rows:
            if row.op in self:
                raise ValueError(f"{row.op} is defined twice")
            self[row.op] = row

    def __missing__(self, name: str) -> Primitive:
        raise VerifyError(f"no primitive {name}{did_you_mean(name, self)}", op=name)


def check(condition: bool, op: str, message: str) -> None:
    """Raise ``VerifyError("<op>: <message>")`` unless the condition holds."""
    if not condition:
        raise VerifyError(f"{op}: {message}", op=f"flat.{op}")
