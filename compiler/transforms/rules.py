"""Tables of rules from one op to FlatIR: ATen expansions, bodies of composites and legalizations share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from itertools import zip_longest
from typing import Any, TypeVar

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Operation, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.graph import values_in
from torchstone.compiler.transforms.builder import Builder


class Declined(Exception):
    """A rule has nothing for this op after all: the target's own refusal is what the user reads."""


class Expander(Builder):
    """The builder a rule gets: it knows the operation being replaced.

    ``b.op`` is the operation, ``b.type`` the type of its first result. A rule returns a value for each result (the one
    value, or a tuple), of exactly the types ``b.op`` has, or calls ``b.unsupported``.
    """

    def __init__(self, ops: list[Operation], op: Operation) -> None:
        super().__init__(ops, op.location.noted(op.name))
        self.op = op

    @property
    def type(self) -> TensorType:
        return self.op.results[0].tensor

    def fitted(self, made: Value | None, result: Value) -> Value | None:
        """What a rule made for a result, of the very sizes that the result has."""
        if made is None or made.type == result.type or made.dtype != result.dtype or made.rank != result.rank:
            return made
        return self.fit(made, result.shape)

    def unsupported(self, why: str) -> Unsupported:
        """Return the error to raise: ``raise b.unsupported("ceil_mode")``."""
        return Unsupported(f"{self.op.name}: {why}", op=self.op.name)


Rule = Callable[..., "Value | tuple[Value | None, ...] | None"]
AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True, slots=True)
class Row:
    """A rule and the op it replaces."""

    op: str
    rule: Rule

    def of_numbers(self, b: Builder, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Operands of a call on Python numbers alone, as ``item()`` gives: a rule that asks for a value gets one."""
        if any(True for operand in operands for _ in values_in(operand)):
            return operands
        asked = [parameter.annotation == "Value" for parameter in signature(self.rule).parameters.values()][1:]
        return tuple(
            b.scalar(operand, _NUMBERS[type(operand)]) if wanted and type(operand) in _NUMBERS else operand
            for operand, wanted in zip_longest(operands, asked[: len(operands)], fillvalue=False)
        )


_NUMBERS = {bool: dt.boolean, int: dt.int64, float: dt.float64, complex: dt.complex128}
"""What PyTorch makes of a Python number where a tensor is asked for."""


class Rules(Mapping[str, Row]):
    """Rules by op name. A second rule for an op is an error, never an overwrite."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def __call__(self, *ops: str) -> Callable[[AnyRule], AnyRule]:
        """Decorate a rule with the ops it replaces: ``@expands("aten.add.Tensor", "aten.add.Scalar")``."""

        def register(rule: AnyRule) -> AnyRule:
            for op in ops:
                self.row(op, rule)
            return rule

        return register

    def row(self, op: str, rule: Rule) -> None:
        if op in self._rows:
            raise ValueError(f"{op} has two rules")
        self._rows[op] = Row(op, rule)

    def __getitem__(self, op: str) -> Row:
        return self._rows[op]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


# ``expands(op)(rule)``: ATen -> FlatIR; the rule takes every argument of the PyTorch schema, in schema order.
expands = Rules()
# ``legalizes(op)(rule)``: a FlatIR op a target does not take -> other FlatIR ops; operands, then attributes by name.
legalizes = Rules()
# ``body(op)(rule)``: a composite -> what it is made of, for targets that do not take it; arguments as for legalizes.
body = Rules()


def apply(row: Row, op: Operation, operands: tuple[Any, ...], ops: list[Operation]) -> tuple[Value | None, ...]:
    """Run a rule for ``op`` with remapped operands; append what it builds to ``ops`` and return its results."""
    builder = Expander(ops, op)
    operands = row.of_numbers(builder, operands)
    out = row.rule(builder, *operands, **(op.attributes if op.name.startswith("flat.") else {}))
    results = out if isinstance(out, tuple) else (out,)
    results = tuple(map(builder.fitted, results, op.results)) if len(results) == len(op.results) else results
    if len(results) != len(op.results):
        raise AssertionError(f"{op.name}: the rule gives {len(results)} results, the op has {len(op.results)}")
    for mine, theirs in zip(results, op.results, strict=True):
        if isinstance(mine, Value) and mine.type != theirs.type:
            raise AssertionError(f"{op.name}: the rule gives {mine.type}, PyTorch says {theirs.type}\n  {op}")
    return results
