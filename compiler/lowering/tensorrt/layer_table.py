"""The table of the lowering: FlatIR op -> layers, with the operand types for which the layers are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.ir import Operation
from torchstone.compiler.ops import PRIMITIVES

# (network, operation, operands as ITensors) -> result ITensor; of a row that ``holds``, Helds for tensors
Build = Callable[..., Any]


def _nothing(op: Operation) -> None:
    return None


@dataclass(frozen=True, slots=True)
class LayerRow:
    """How one primitive is lowered.

    ``layer`` names it for people. ``types`` are the operand types (names of ``tensorrt.DataType``) for which TensorRT
    documents what FlatIR asks for. ``refuses`` gives a reason against an op of such a type that is not taken even so.
    ``holds``: its layer, if there is one, is added when its result is read (``held``).
    """

    layer: str
    types: frozenset[str]
    build: Build
    refuses: Callable[[Operation], str | None] = _nothing
    holds: bool = False


class LayerRows(Mapping[str, LayerRow]):
    """LayerRows by op name; a second one for an op, and a name that is no primitive, are errors."""

    def __init__(self) -> None:
        self._rows: dict[str, LayerRow] = {}

    def add(self, name: str, row: LayerRow) -> None:
        op = PRIMITIVES[f"flat.{name}"].op
        if op in self._rows:
            raise ValueError(f"{op} has two rows")
        self._rows[op] = row

    def __call__(
        self, name: str, layer: str, types: frozenset[str], refuses: Any = _nothing, holds: bool = False
    ) -> Callable[[Build], Build]:
        """Decorate the function that builds the layers of a primitive."""

        def register(build: Build) -> Build:
            self.add(name, LayerRow(layer, types, build, refuses, holds))
            return build

        return register

    def __getitem__(self, op: str) -> LayerRow:
        return self._rows[op]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


lowers = LayerRows()
