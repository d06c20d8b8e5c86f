"""What programs have reached: ops, ops on each kind of operand, and ops on results of ops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import dtype_name
from torchstone.fuzz.traits import layouts


@dataclass
class Vocabulary:
    """``ops`` counts calls by public name; ``operands`` are an op with dtype, rank and layout of an input; ``pairs``
    are an op, and one whose result it takes.
    """

    ops: Counter[str] = field(default_factory=Counter)
    operands: set[tuple[str, str, int, str]] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def add(self, case: Case) -> None:
        """Take note of the calls of a program."""
        made = {call.result: call.target for call in case.program.calls}
        for call in case.program.calls:
            self.ops[call.target] += 1
            for ref in call.refs():
                if ref.name in made:
                    self.pairs.add((made[ref.name], call.target))
                else:
                    tensor = case.inputs[ref.name]
                    self.operands.add((call.target, dtype_name(tensor.dtype), tensor.dim(), ", ".join(layouts(tensor))))

    def __str__(self) -> str:
        return f"{len(self.ops)} ops, {len(self.operands)} ops by operand, {len(self.pairs)} pairs of ops"

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "op_kinds": len(self.ops),
            "ops_by_operand": len(self.operands),
            "op_pairs": len(self.pairs),
            "ops": dict(self.ops.most_common()),
        }
