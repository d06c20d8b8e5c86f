"""What programs have reached: ops, ops on each kind of operand, and ops on results of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import dtype_name
from torchstone.conformance.program.program import Program
from torchstone.fuzz.traits import layouts


@dataclass
class Vocabulary:
    """``ops`` counts calls by public name, those in branches and loops too; ``dtypes`` are an op with the dtype of an
    input; ``operands`` an op with dtype, rank and layout of one; ``pairs`` an op, and one whose result it takes.
    """

    ops: Counter[str] = field(default_factory=Counter)
    dtypes: set[tuple[str, str]] = field(default_factory=set)
    operands: set[tuple[str, str, int, str]] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def add(self, case: Case) -> None:
        """Take note of the calls of a program."""
        self._add(case.program, case.inputs)

    def _add(self, program: Program, inputs: Mapping[str, Tensor]) -> None:
        made = {call.result: call.target for call in program.calls}
        for call in program.calls:
            self.ops[call.target] += 1
            for ref in call.refs():
                if ref.name in made:
                    self.pairs.add((made[ref.name], call.target))
                elif (tensor := inputs.get(ref.name)) is not None:
                    dtype = dtype_name(tensor.dtype)
                    self.dtypes.add((call.target, dtype))
                    self.operands.add((call.target, dtype, tensor.dim(), ", ".join(layouts(tensor))))
            for body in call.bodies():
                self._add(body, {})

    def __str__(self) -> str:
        kinds = f"{len(self.dtypes)} ops by dtype, {len(self.operands)} by dtype, rank and layout"
        return f"{len(self.ops)} ops, {kinds}, {len(self.pairs)} pairs of ops"

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "op_kinds": len(self.ops),
            "ops_by_dtype": len(self.dtypes),
            "ops_by_operand": len(self.operands),
            "op_pairs": len(self.pairs),
            "ops": dict(self.ops.most_common()),
        }
