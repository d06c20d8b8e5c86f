"""Builds TOSA through the bindings' generated builders, inferring result types and leaving broadcasts implicit.

A value is kept *thin* when it can be: of the full rank, with size 1 in the dims it is constant along, because every
elementwise TOSA op repeats size-1 dims of its operands by itself. ``full`` makes the copies where an op needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import DType, Location, Value
from torchstone.compiler.ir.dims import Dim

Handle = Any  # an mlir.ir.Value


def location(source: Location, name: str) -> Any:
    """Return the op's name around the user's innermost line, for MLIR's diagnostics."""
    ir = mlir.ir
    frames = [ir.Location.file(f.file, f.line, 0) for f in source.frames[:1]]
    return ir.Location.name(name, *frames)


class TosaEmitter:
    """Emits ops at the current insertion point. ``values`` maps the id of each IR value to its (maybe thin) handle."""

    def __init__(self) -> None:
        self.ir = mlir.ir
        self.tosa = mlir.tosa
        self.any = self.ir.ShapedType.get_dynamic_size()
        self.values: dict[int, Handle] = {}
        self._constants: dict[Any, Handle] = {}
        self.numbers: dict[int, Any] = {}  # of the values that are one number all over, written in the graph
        self.exact: set[int] = set()  # the ids of quotients that are rounded to integers or compared

    # Types

    def element(self, dtype: DType) -> Any:
        return self.ir.Type.parse(dtype.mlir)

    def type(self, shape: Sequence[Dim | None], element: Any) -> Any:
        """Return a ranked tensor type; a size that is no int is dynamic. ``element`` is a dtype or an MLIR type."""
        element = self.element(element) if isinstance(element, DType) else element
        return self.ir.RankedTensorType.get([d if isinstance(d, int) else self.any for d in shape], element)

    def shape(self, x: Handle) -> list[int]:
        return list(x.type.shape)

    def is_static(self, x: Handle) -> bool:
        return self.any not in self.shape(x)

    # Constants

    def constant(self, value: Any, shape: Sequence[Dim], element: Any) -> Handle:
        """A ``tosa.const``, equal ones emitted once.

        ``value`` is one number, all of them in row-major order, or a numpy array of this shape and element.
        """
        attribute = self._elements(value, self.type(shape, element))
        if attribute not in self._constants:
            self._constants[attribute] = self.tosa.const(attribute)
        return self._constants[attribute]

    def _elements(self, value: Any, kind: Any) -> Any:
        dense, element = self.ir.DenseElementsAttr, kind.element_type
        if isinstance(value, np.ndarray):
            return dense.get(value, type=kind)
        if isinstance(value, tuple):
            return dense.get([self._number(v, element) for v in value], kind)
        return dense.get_splat(kind, self._number(value, element))

    def _number(self, value: Any, element: Any) -> Any:
        ir = self.ir
        if not isinstance(element, ir.IntegerType):
            return ir.FloatAttr.get(element, float(value))
        if element.width == 1:
            return ir.BoolAttr.get(bool(value))
        number = int(value) & ((1 << element.width) - 1)
        return ir.IntegerAttr.get(element, number - (1 << element.width) if number >> (element.width - 1) else number)

    def like(self, x: Handle, value: Any) -> Handle:
        """One number, of x's element type, as a thin value."""
        return self.constant(value, [1] * x.type.rank, x.type.element_type)

    def sizes(self, values: Sequence[Dim]) -> Handle:
        """A ``tosa.const_shape``."""
        ir = self.ir
        kind = ir.Type.parse(f"!tosa.shape<{len(values)}>")
        tensor = ir.RankedTensorType.get([len(values)], ir.IndexType.get())
        items = [ir.IntegerAttr.get(ir.IndexType.get(), v) for v in values]
        attribute = (
            ir.DenseElementsAttr.get(items, tensor) if items else ir.Attribute.parse("dense<> : tensor<0xindex>")
        )
        if attribute not in self._constants:
            self._constants[attribute] = self.tosa.const_shape(kind, attribute)
        return self._constants[attribute]

    def numbers_attribute(self, values: Sequence[int]) -> Any:
        return self.ir.DenseI64ArrayAttr.get(list(values))

    # Elementwise

    def joined(self, *xs: Handle, element: Any = None) -> Any:
        """Return the type of an elementwise result: in each dim the size that is not 1; the last operand's element."""
        shape = [next((d for d in dims if d != 1), 1) for dims in zip(*(self.shape(x) for x in xs), strict=True)]
        return self.type(shape, element or xs[-1].type.element_type)

    def map(self, name: str, *xs: Handle, element: Any = None) -> Handle:
        """Emit an elementwise op on operands of one rank."""
        return self.map_to(self.joined(*xs, element=element), name, *xs)

    def map_to(self, out: Any, name: str, *xs: Handle) -> Handle:
        """Emit an op with this result type. Builders whose op infers its result take the type as ``results``."""
        builder = getattr(self.tosa, name)
        return builder(*xs, results=[out]) if name == "equal" else builder(out, *xs)

    def compare(self, name: str, x: Handle, y: Handle) -> Handle:
        boolean = self.ir.IntegerType.get_signless(1)
        out = self.joined(x, y, element=boolean)
        return self.map_to(out, name, x, y)

    def multiply(self, x: Handle, y: Handle) -> Handle:
        return self.tosa.mul(self.joined(x, y), x, y, self.constant(0, [1], self.ir.IntegerType.get_signless(8)))

    def select(self, predicate: Handle, x: Handle, y: Handle) -> Handle:
        return self.map("select", predicate, x, y)

    def cast(self, x: Handle, element: Any) -> Handle:
        return self.map("cast", x, element=element)

    # Movement

    def _before(self, x: Handle, name: str) -> Any:
        """Return the op that made x if it has this name, and static sizes, else None."""
        op = getattr(x.owner, "operation", None)
        return op if op is not None and op.name == name and self.is_static(x) else None

    def reshape(self, x: Handle, shape: Sequence[Dim]) -> Handle:
        """Reshape; of a reshaped tensor, that tensor."""
        before = self._before(x, "tosa.reshape")
        if before is not None and self.is_static(before.operands[0]) and all(isinstance(d, int) for d in shape):
            x = before.operands[0]
        if list(shape) == self.shape(x):
            return x
        return self.tosa.reshape(x, self.sizes(shape), results=[self.type(shape, x.type.element_type)])

    def transpose(self, x: Handle, permutation: Sequence[int]) -> Handle:
        """Transpose; of a transposed tensor, that tensor."""
        before = self._before(x, "tosa.transpose")
        if before is not None:
            x, first = before.operands[0], list(before.attributes["perms"])
            permutation = [first[p] for p in permutation]
        shape = self.shape(x)
        if list(permutation) == list(range(len(shape))):
            return x
        return self.tosa.transpose(
            self.type([shape[p] for p in permutation], x.type.element_type), x, list(permutation)
        )

    def tile(self, x: Handle, shape: Sequence[int]) -> Handle:
        """Repeat the size-1 dims of x up to ``shape``."""
        have = self.shape(x)
        if have == list(shape):
            return x
        repeats = [1 if a == b else b for a, b in zip(have, shape, strict=True)]
        return self.tosa.tile(self.type(shape, x.type.element_type), x, self.sizes(repeats))

    def pad_constant(self, value: Value) -> Handle:
        """Return a 0-d value as TOSA's pad wants it: one element, a constant where it is one (else EXT-DYNAMIC)."""
        if id(value) in self.numbers:
            return self.constant(self.numbers[id(value)], [1], value.dtype)
        return self.reshape(self.full(value), [1])

    # IR values

    def source(self, value: Value) -> Handle | None:
        """Return what the value is a reshape of, if it is one and both sizes are static."""
        before = self._before(self.values[id(value)], "tosa.reshape")
        return before.operands[0] if before is not None and self.is_static(before.operands[0]) else None

    def thin(self, value: Value) -> Handle:
        return self.values[id(value)]

    def full(self, value: Value) -> Handle:
        """Return the handle with every repeated dim made; Unsupported where a repeated size is dynamic."""
        x = self.values[id(value)]
        want = [d if isinstance(d, int) else self.any for d in value.shape]
        if self.shape(x) == want:
            return x
        if self.any in want:
            raise Unsupported(f"TOSA repeats no dim of dynamic size, for {value.type}", stage="lower")
        return self.tile(x, want)
