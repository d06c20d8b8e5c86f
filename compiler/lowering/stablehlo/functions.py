"""Functions that StableHLO lacks, as composites: an op that names the function, with a private one that computes it.

The private function is the primitive's legalization. A consumer that knows the name, as CHLO has it, may take its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Graph, Operation, Value
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.checked import drop_unused
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter, ranked
from torchstone.compiler.lowering.stablehlo.table import Rule
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.legalizations.common import BOUNDS

# primitive -> the composite's name.
NAMES: dict[str, str] = {
    **{
        name: f"chlo.{name}"
        for name in (
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atanh",
            "cosh",
            "erf",
            "erfc",
            "lgamma",
            "sinh",
        )
    },
    **{name: f"torchstone.{name}" for name in ("exp2", "log2", "log10")},
}


class Functions:
    """The private functions of a module, one for each function and type."""

    def __init__(
        self, body: Any, takes: Callable[[Operation], str | None], emit: Callable[[StablehloEmitter, Operation], None]
    ) -> None:
        self._body = body
        self._takes = takes
        self._emit = emit
        self._made: dict[tuple[str, TensorType], str] = {}

    def name(self, function: str, kind: TensorType) -> str:
        """Return the symbol of the one that computes a function on tensors of this type, written when it is new."""
        key = (function, kind)
        if key not in self._made:
            same = sum(name == function for name, _ in self._made)
            self._made[key] = f"{NAMES[function]}.{same}"
            self._write(function, kind, self._made[key])
        return self._made[key]

    def _write(self, function: str, kind: TensorType, symbol: str) -> None:
        ir = mlir.ir
        x = Value(kind, "x")
        graph = Graph(function, [x])
        graph.outputs = Builder(graph.ops).emit(function, x)
        graph = expand(graph, self._takes)
        with ir.InsertionPoint(self._body):
            types = [ranked(kind.dims, kind.dtype)]
            made = mlir.func.FuncOp(symbol, (types, types), visibility="private")
        with ir.InsertionPoint(made.add_entry_block()):
            emitter = StablehloEmitter(graph, list(made.arguments), self)
            for op in graph.ops:
                self._emit(emitter, op)
            (out,) = graph.outputs
            mlir.func.ReturnOp([emitter.values[id(out)]])
        drop_unused(made)


def _composite(e: StablehloEmitter, op: Operation) -> Handle:
    (x,) = op.values
    function = op.name.removeprefix("flat.")
    symbol = e.functions.name(function, x.tensor)
    return e.emit(
        "composite", e.of(op.result), e.values[id(x)],
        name=e.ir.StringAttr.get(NAMES[function]), decomposition=e.ir.FlatSymbolRefAttr.get(symbol),
    )  # fmt: skip


ROWS = tuple(
    Rule(name, frozenset(d for d in ("float32", "float64") if (name, d) in BOUNDS), _composite, dynamic=False)
    for name in NAMES
)
