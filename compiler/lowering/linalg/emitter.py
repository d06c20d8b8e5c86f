"""Builds the linalg module of a graph: types, run-time sizes, locations, and where each value is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Expr, Graph, Operation, Value
from torchstone.compiler.ir.dims import Atom, Dim, linear, product
from torchstone.compiler.ir.graph import Location
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import loop_fusion
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.libm import Library
from torchstone.compiler.lowering.linalg.nest import LoopNest
from torchstone.compiler.lowering.linalg.views import loops


class LinalgEmitter:
    """State of one lowering. ``values`` maps the id of a stored value to its MLIR tensor.

    ``work`` counts the loop iterations of the module, ``nests`` its loop nests.
    """

    def __init__(self, graph: Graph, arguments: Sequence[Any], body: Any) -> None:
        self.graph = graph
        self.library = Library(body)
        self.values: dict[int, Any] = {id(v): a for v, a in zip(graph.args, arguments, strict=True)}
        self.producers: dict[int, Operation] = {id(r): op for op in graph.ops for r in op.results}
        self.work: Dim = 0
        self.nests = 0
        self._arguments = list(zip(graph.args, arguments, strict=True))
        self._sizes: dict[Dim, Any] = {}
        self._reachable: set[int] = set()

    # Types and sizes

    def type(self, tensor: TensorType, element: Any = None) -> Any:
        return mlir.ir.RankedTensorType.get(static_sizes(tensor.dims), element or s.element(tensor.dtype))

    def size(self, dim: Dim) -> Any:
        """Return a size as an ``index`` value."""
        if dim not in self._sizes:
            self._sizes[dim] = s.constant(s.index(), dim) if isinstance(dim, int) else self._polynomial(dim)
        return self._sizes[dim]

    def _polynomial(self, dim: Expr) -> Any:
        total = None
        for atoms, coefficient in dim.terms:
            term = s.constant(s.index(), coefficient)
            for atom in atoms:
                term = mlir.arith.muli(term, self._atom(atom))
            total = term if total is None else mlir.arith.addi(total, term)
        return total

    def _atom(self, atom: Atom) -> Any:
        if atom.args:
            a, b = (self.size(x) for x in atom.args)
            if atom.name == "mod":
                return mlir.arith.subi(a, mlir.arith.muli(mlir.arith.floordivsi(a, b), b))
            name = {"floordiv": "floordivsi", "max": "maxsi", "min": "minsi"}[atom.name]
            return getattr(mlir.arith, name)(a, b)
        for value, argument in self._arguments:
            for position, size in enumerate(value.shape):
                if str(size) == atom.name:
                    return mlir.tensor.DimOp(argument, s.constant(s.index(), position)).result
        for value, argument in self._arguments:  # the size of none: it is told by what is made of it
            for position, size in enumerate(value.shape):
                if (found := linear(size)) is not None and found[0] == atom.name:
                    whole = mlir.tensor.DimOp(argument, s.constant(s.index(), position)).result
                    rest = mlir.arith.subi(whole, s.constant(s.index(), found[2]))
                    return mlir.arith.floordivsi(rest, s.constant(s.index(), found[1]))
        raise Unsupported(f"the size {atom.name} is not the size of any argument", stage="lower")

    def mixed(self, dims: Sequence[Dim]) -> tuple[list[int], list[Any]]:
        """Return sizes the way MLIR takes them: a static list with markers, and the values of the marked ones."""
        return static_sizes(dims), [self.size(d) for d in dims if not isinstance(d, int)]

    def empty(self, shape: Sequence[Dim], element: Any) -> Any:
        sizes, values = self.mixed(shape)
        return mlir.create("tensor.empty", mlir.ir.RankedTensorType.get(sizes, element), values)

    def fill(self, shape: Sequence[Dim], raw: Any) -> Any:
        """Return a tensor whose elements are all the memory element ``raw``."""
        empty = self.empty(shape, raw.type)
        # The function `linalg.fill` of the bindings goes through their op definition language, 20 times slower.
        op = mlir.linalg.FillOp([empty.type], [raw], [empty])
        mlir.linalg.fill_builtin_region(op.operation)
        return op.results[0]

    def location(self, op: Operation) -> Any:
        return mlir_location(op.name, op.location)

    # Values

    def tensor(self, value: Value) -> Any:
        """Return the MLIR tensor of a value, storing it if it was to be computed in place."""
        if id(value) not in self.values:
            self.values[id(value)] = self._store(value)
        return self.values[id(value)]

    def _store(self, value: Value) -> Any:
        element = s.element(value.dtype)
        if 0 in value.shape:
            return self.empty(value.shape, element)
        producer = self.producers[id(value)]
        if loop_fusion.is_scalar_constant(producer):
            raw = s.store(value.dtype, s.literal(value.dtype, producer.attributes["value"]))
            return self.fill(value.shape, raw)
        nest = LoopNest(self, value.shape)
        nest.read(value, loops(value.rank))
        target = (self.empty(value.shape, element), loops(value.rank))
        return nest.build([target], lambda _: [s.store(value.dtype, nest.scalar(value, loops(value.rank)))])[0]

    def reachable(self, op: Operation) -> None:
        """Fail at run time where a gather has something to read from dims that turn out to have no elements."""
        x, dims = next(op.values), op.attributes["dims"]
        unknown = [x.shape[d] for d in dims if not isinstance(x.shape[d], int)]
        if not unknown or id(op) in self._reachable:
            return
        self._reachable.add(id(op))
        zero = s.constant(s.index(), 0)
        fine = s.compare_int("eq", self.size(product(op.result.shape)), zero)
        some = s.compare_int("ne", self.size(product(unknown)), zero)
        mlir.cf.AssertOp(mlir.arith.ori(fine, some), f"gather: there is nothing to read in {x.tensor}")

    def count(self, sizes: Sequence[Dim]) -> None:
        self.work = self.work + product(sizes)
        self.nests += 1


def static_sizes(dims: Sequence[Dim]) -> list[int]:
    dynamic = mlir.ir.ShapedType.get_dynamic_size()
    return [d if isinstance(d, int) else dynamic for d in dims]


def mlir_location(name: str, location: Location) -> Any:
    """Return an MLIR location: the op's name at the user's line, when there is one."""
    frame = location.frames[0] if location.frames else None
    return _location(name, frame.file, frame.line) if frame is not None else _location(name, "", 0)


@lru_cache(maxsize=4096)
def _location(name: str, file: str, line: int) -> Any:
    ir = mlir.ir
    return ir.Location.name(name, ir.Location.file(file, line, 0)) if file else ir.Location.name(name)
