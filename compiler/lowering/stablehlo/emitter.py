"""Builds StableHLO op by op. The bindings have no classes for its ops: they are made by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import DType, Expr, Graph, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Atom, Dim, linear, nonnegative
from torchstone.compiler.ir.dtypes import DTYPES

Handle = Any  # an mlir.ir.Value


class StablehloEmitter:
    """Emits ops at the current insertion point. ``values`` maps the id of each IR value to its handle."""

    def __init__(self, graph: Graph, arguments: Sequence[Handle], functions: Any) -> None:
        self.ir = mlir.ir
        self.values: dict[int, Handle] = {id(v): a for v, a in zip(graph.args, arguments, strict=True)}
        self.functions = functions  # the Functions of the module
        self._arguments = list(zip(graph.args, arguments, strict=True))
        self.numbers: dict[int, Any] = {}  # of the values that are one number all over, written in the graph
        self._sizes: dict[Dim, Handle] = {}

    @classmethod
    def bare(cls) -> StablehloEmitter:
        """Return one of no graph."""
        return cls(Graph("", []), (), None)

    # Types and attributes

    def element(self, dtype: DType) -> Any:
        return element(dtype)

    def type(self, shape: Sequence[Dim], dtype: DType) -> Any:
        return ranked(shape, dtype)

    def of(self, value: Value) -> Any:
        """Return the type of a value of the IR."""
        return self.type(value.shape, value.dtype)

    def integers(self, values: Sequence[Any]) -> Any:
        return self.ir.DenseI64ArrayAttr.get(list(values))

    def integer(self, value: int) -> Any:
        return self.ir.IntegerAttr.get(self.ir.IntegerType.get_signless(64), value)

    def matrix(self, rows: Sequence[Sequence[int]]) -> Any:
        """Return a table of integers with two columns, as paddings are given."""
        kind = self.ir.RankedTensorType.get([len(rows), 2], self.ir.IntegerType.get_signless(64))
        if not rows:
            return self.ir.Attribute.parse("dense<> : tensor<0x2xi64>")
        return self.ir.DenseElementsAttr.get([self.integer(n) for row in rows for n in row], kind)

    def attribute(self, text: str) -> Any:
        return self.ir.Attribute.parse(text)

    # Ops

    def create(
        self, op: str, results: Sequence[Any], operands: Sequence[Handle], regions: int = 0, /, **attributes: Any
    ) -> Any:
        """Make ``stablehlo.<op>``."""
        return self.ir.Operation.create(f"stablehlo.{op}", results, operands, attributes, regions=regions)

    def emit(self, op: str, result: Any, /, *operands: Handle, **attributes: Any) -> Handle:
        """Make an op of one result, of that type, and return the result."""
        return self.create(op, [result], operands, **attributes).result

    def map(self, name: str, *xs: Handle) -> Handle:
        """Emit an elementwise op whose result is of the type of its last operand."""
        return self.emit(name, xs[-1].type, *xs)

    def compare(self, relation: str, x: Handle, y: Handle) -> Handle:
        """``relation`` is EQ, NE, LT, LE, GT or GE."""
        kind = x.type
        boolean = self.ir.RankedTensorType.get(kind.shape, self.ir.IntegerType.get_signless(1))
        direction = self.attribute(f"#stablehlo<comparison_direction {relation}>")
        return self.emit("compare", boolean, x, y, comparison_direction=direction)

    def select(self, predicate: Handle, x: Handle, y: Handle) -> Handle:
        return self.emit("select", x.type, predicate, x, y)

    def convert(self, x: Handle, dtype: DType) -> Handle:
        kind = self.ir.RankedTensorType.get(x.type.shape, element(dtype))
        return x if kind == x.type else self.emit("convert", kind, x)

    def reshape(self, x: Handle, shape: Sequence[Any]) -> Handle:
        kind = self.ir.RankedTensorType.get(list(shape), x.type.element_type)
        return x if kind == x.type else self.emit("reshape", kind, x)

    def body(self, op: Any, types: Sequence[Any], build: Callable[..., Sequence[Handle]]) -> None:
        """Fill the first region of an op that combines: 0-d tensors of these elements in, what ``build`` makes out."""
        scalars = [self.ir.RankedTensorType.get([], t) for t in types]
        block = self.ir.Block.create_at_start(op.regions[0], scalars, [op.location] * len(scalars))
        with self.ir.InsertionPoint(block):
            self.create("return", [], build(*block.arguments))

    # Constants

    def constant(self, value: Any, shape: Sequence[Any], dtype: DType) -> Handle:
        """``value`` is one number, or all of them in row-major order."""
        if dtype.is_complex:  # the bindings read no attribute that holds complex numbers
            many = isinstance(value, tuple)
            numbers = [complex(v) for v in (value if many else (value,))]
            parts = (tuple(v.real for v in numbers), tuple(v.imag for v in numbers))
            real, imag = (self.constant(part if many else part[0], shape, dtype.real) for part in parts)
            return self.emit("complex", self.type(shape, dtype), real, imag)
        return self.emit("constant", self.type(shape, dtype), value=elements(value, self.type(shape, dtype), dtype))

    def like(self, x: Value, value: Any) -> Handle:
        """Return one number in the shape and dtype of a value."""
        return self.full(value, x.shape, x.dtype)

    def full(self, value: Any, shape: Sequence[Dim], dtype: DType) -> Handle:
        sizes = [d for d in shape if isinstance(d, int)]
        if len(sizes) == len(shape):
            return self.constant(value, sizes, dtype)
        return self.broadcast(self.constant(value, (), dtype), shape, (), dtype)

    def broadcast(self, x: Handle, shape: Sequence[Dim], dims: Sequence[int], dtype: DType) -> Handle:
        """A size of ``x`` that is 1 is repeated, any other is the one it has in ``shape``."""
        kind = self.type(shape, dtype)
        if all(isinstance(d, int) for d in shape):
            return self.emit("broadcast_in_dim", kind, x, broadcast_dimensions=self.integers(dims))
        repeated = [i for i, size in enumerate(x.type.shape) if size == 1]
        kept = [i for i, size in enumerate(x.type.shape) if size != 1]
        return self.emit(
            "dynamic_broadcast_in_dim", kind, x, self.sizes(shape), broadcast_dimensions=self.integers(dims),
            known_expanding_dimensions=self.integers(repeated), known_nonexpanding_dimensions=self.integers(kept),
        )  # fmt: skip

    def count(self, size: Dim) -> Handle:
        """Return 0, 1, …, size - 1 in int64."""
        kind = self.type((size,), dt.int64)
        if isinstance(size, int):
            return self.emit("iota", kind, iota_dimension=self.integer(0))
        return self.emit("dynamic_iota", kind, self.sizes((size,)), iota_dimension=self.integer(0))

    # Sizes at run time

    def sizes(self, shape: Sequence[Dim]) -> Handle:
        """Return sizes as a tensor of one dim of i32."""
        parts = [self.reshape(self.size(d), [1]) for d in shape]
        kind = self.type((len(parts),), dt.int32)
        if not parts:
            return self.constant((), (0,), dt.int32)
        return self.emit("concatenate", kind, *parts, dimension=self.integer(0)) if len(parts) > 1 else parts[0]

    def size(self, dim: Dim) -> Handle:
        """Return a size as a 0-d tensor of i32."""
        if isinstance(dim, int):
            return self.constant(dim, (), dt.int32)
        if dim not in self._sizes:
            self._sizes[dim] = self._polynomial(dim)
        return self._sizes[dim]

    def _polynomial(self, dim: Expr) -> Handle:
        total = None
        for atoms, coefficient in dim.terms:
            term = self.constant(coefficient, (), dt.int32)
            for atom in atoms:
                term = self.map("multiply", term, self._atom(atom))
            total = term if total is None else self.map("add", total, term)
        return total

    def _atom(self, atom: Atom) -> Handle:
        if atom.args:
            a, b = (self.size(x) for x in atom.args)
            if atom.name in ("max", "min"):
                return self.map(f"{atom.name}imum", a, b)
            return self._rounded_down(atom, a, b)
        for value, argument in self._arguments:
            for position, size in enumerate(value.shape):
                if str(size) == atom.name:
                    kind = self.type((), dt.int32)
                    return self.emit("get_dimension_size", kind, argument, dimension=self.integer(position))
        for value, argument in self._arguments:  # the size of none: it is told by what is made of it
            for position, size in enumerate(value.shape):
                if (found := linear(size)) is not None and found[0] == atom.name:
                    kind = self.type((), dt.int32)
                    whole = self.emit("get_dimension_size", kind, argument, dimension=self.integer(position))
                    rest = self.map("subtract", whole, self.constant(found[2], (), dt.int32))
                    return self.map("divide", rest, self.constant(found[1], (), dt.int32))
        raise Unsupported(f"the size {atom.name} is not the size of any argument", stage="lower")

    def _rounded_down(self, atom: Atom, a: Handle, b: Handle) -> Handle:
        """Return a quotient or what is left of it: StableHLO's are rounded towards zero."""
        whole, divisor = atom.args
        if not nonnegative(divisor):
            raise Unsupported(f"a size is divided by {divisor}, which may be negative", stage="lower")
        if nonnegative(whole):
            return self.map({"floordiv": "divide", "mod": "remainder"}[atom.name], a, b)
        left = self.map("remainder", self.map("add", self.map("remainder", a, b), b), b)
        return left if atom.name == "mod" else self.map("divide", self.map("subtract", a, left), b)


def ranked(shape: Sequence[Dim], dtype: DType) -> Any:
    """Return a tensor type; a size that is no int is dynamic."""
    any_size = mlir.ir.ShapedType.get_dynamic_size()
    return mlir.ir.RankedTensorType.get([d if isinstance(d, int) else any_size for d in shape], element(dtype))


def element(dtype: DType) -> Any:
    """Return the element type: as for MLIR everywhere, but unsigned integers say so."""
    kind = mlir.ir.Type.parse(dtype.mlir)
    return mlir.ir.IntegerType.get_unsigned(dtype.bits) if dtype.is_int and not dtype.is_signed else kind


def dtype_of(kind: Any) -> DType:
    """Return the dtype of a tensor type's elements."""
    return next(d for d in DTYPES if d.name != "complex32" and element(d) == kind.element_type)


def elements(value: Any, kind: Any, dtype: DType) -> Any:
    """Return the attribute of one number for all, or of all numbers, as a tensor of this type."""
    dense = mlir.ir.DenseElementsAttr
    if not isinstance(value, tuple):
        return dense.get_splat(kind, _number(value, dtype))
    return (
        dense.get([_number(v, dtype) for v in value], kind) if value else mlir.ir.Attribute.parse(f"dense<> : {kind}")
    )


def _number(value: Any, dtype: DType) -> Any:
    ir, kind = mlir.ir, element(dtype)
    if dtype.is_float:
        return ir.FloatAttr.get(kind, float(value))
    if dtype.is_bool:
        return ir.BoolAttr.get(bool(value))
    number = int(value) & ((1 << dtype.bits) - 1)
    negative = (dtype.is_signed or dtype.bits == 64) and number >> (dtype.bits - 1)  # the bindings pass 64 bits signed
    return ir.IntegerAttr.get(kind, number - (1 << dtype.bits) if negative else number)
