"""Builds the linalg module of a graph: types, run-time sizes, locations, and loop nests with what they fuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Expr, Graph, Operation, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Atom, Dim, product
from torchstone.compiler.ir.graph import Location
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import elementwise, plan
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.libm import Library
from torchstone.compiler.lowering.linalg.scalars import Scalar
from torchstone.compiler.lowering.linalg.views import VIEWS, Index, is_view, loops
from torchstone.compiler.runtime import mlir


class Emitter:
    """State of one lowering. ``values`` maps the id of a stored value to its MLIR tensor.

    ``work`` counts the loop iterations of the module, None once one is not known.
    """

    def __init__(self, graph: Graph, arguments: Sequence[Any], body: Any) -> None:
        self.graph = graph
        self.library = Library(body)
        self.values: dict[int, Any] = {id(v): a for v, a in zip(graph.args, arguments, strict=True)}
        self.producers: dict[int, Operation] = {id(r): op for op in graph.ops for r in op.results}
        self.work: int | None = 0
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
        raise Unsupported(f"the size {atom.name} is not the size of any argument", stage="lower")

    def mixed(self, dims: Sequence[Dim]) -> tuple[list[int], list[Any]]:
        """Return sizes the way MLIR takes them: a static list with markers, and the values of the marked ones."""
        return static_sizes(dims), [self.size(d) for d in dims if not isinstance(d, int)]

    def empty(self, shape: Sequence[Dim], element: Any) -> Any:
        return mlir.tensor.EmptyOp([d if isinstance(d, int) else self.size(d) for d in shape], element).result

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
        if plan.is_scalar_constant(producer):
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
        for size in sizes:
            if not isinstance(size, int):
                self.work = None
        if self.work is not None:
            total = 1
            for size in sizes:
                total *= int(size)  # type: ignore[arg-type]
            self.work += total


class LoopNest:
    """One ``linalg.generic``: first ``read`` what the body needs, then ``build`` it, asking for ``scalar``s inside."""

    def __init__(self, emitter: Emitter, sizes: Sequence[Dim], reduced: Sequence[int] = ()) -> None:
        self.emitter = emitter
        self.sizes = tuple(sizes)
        self.reduced = frozenset(reduced)
        self._inputs: dict[tuple[int, Index], tuple[Any, Value]] = {}
        self._seen: set[tuple[int, Index]] = set()
        self._scalars: dict[tuple[int, Index], Scalar] = {}
        # Tensors read at computed places, with their sizes.
        self._whole: dict[int, tuple[Any, list[Any]]] = {}
        self._more: list[Any] = []
        self.extras: list[Any] = []

    def extra(self, tensors: Sequence[Any]) -> None:
        """Read tensors of the nest's own shape that are no IR values; inside the body ``extras`` are their elements."""
        self._more.extend(tensors)

    def read(self, value: Value, index: Index) -> None:
        """Make what ``value`` at ``index`` is computed from an input of the nest."""
        key = (id(value), index)
        if key in self._seen:
            return
        self._seen.add(key)
        op = self.emitter.producers.get(id(value))
        if id(value) in self.emitter.values or op is None or not plan.is_fused(op):
            self._inputs[key] = (self.emitter.tensor(value), value)
        elif op.name in VIEWS:
            self.read(next(op.values), VIEWS[op.name](op, index))
        elif op.name == "flat.gather":
            x, *places = op.values
            self.emitter.reachable(op)
            self._whole[id(x)] = (self.emitter.tensor(x), [self.emitter.size(d) for d in x.shape])
            for place in places:
                self.read(place, index[: place.rank])
        else:
            for operand in op.values:
                self.read(operand, index)

    def build(self, outputs: Sequence[tuple[Any, Index]], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Emit the nest and return its results.

        ``outputs`` are the initial tensors and where each iteration writes. ``body`` is given the elements of the
        outputs and returns the new ones; in it, ``scalar`` gives what was ``read``.
        """
        ir = mlir.ir
        self.emitter.count(self.sizes)
        keys = list(self._inputs)
        tensors = [*(self._inputs[k][0] for k in keys), *self._more]
        indices = [*(k[1] for k in keys), *(loops(len(self.sizes)) for _ in self._more)]
        if not self._covered([*indices, *(i for _, i in outputs)]):
            # No operand has a dim of every loop: give the sizes by a tensor that nothing reads.
            tensors.append(self.emitter.empty(self.sizes, s.integer(8)))
            indices.append(loops(len(self.sizes)))
        maps = [affine_map(len(self.sizes), i) for i in (*indices, *(i for _, i in outputs))]
        kinds = ["reduction" if d in self.reduced else "parallel" for d in range(len(self.sizes))]
        iterators = [ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]
        targets = [t for t, _ in outputs]
        op = mlir.linalg.GenericOp(
            [t.type for t in targets], tensors, targets, ir.ArrayAttr.get(maps), ir.ArrayAttr.get(iterators)
        )
        types = [t.type.element_type for t in (*tensors, *targets)]
        block = op.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
        with ir.InsertionPoint(block):
            for position, key in enumerate(keys):
                self._scalars[key] = s.load(self._inputs[key][1].dtype, block.arguments[position])
            self.extras = list(block.arguments)[len(keys) : len(keys) + len(self._more)]
            mlir.linalg.YieldOp(body(list(block.arguments)[len(tensors) :]))
        return list(op.results)

    def scalar(self, value: Value, index: Index) -> Scalar:
        """Return ``value`` at ``index`` inside the body; only what was ``read``."""
        key = (id(value), index)
        if key not in self._scalars:
            op = self.emitter.producers[id(value)]
            with self.emitter.location(op):
                self._scalars[key] = self._compute(op, index)
        return self._scalars[key]

    def _compute(self, op: Operation, index: Index) -> Scalar:
        result = op.result.dtype
        if op.name in VIEWS and is_view(op):
            return self.scalar(next(op.values), VIEWS[op.name](op, index))
        if op.name == "flat.constant":
            return s.literal(result, op.attributes["value"])
        if op.name == "flat.iota":
            return s.cast(dt.int64, result, position(index[0]))
        if op.name == "flat.gather":
            return self._gathered(op, index)
        operands = tuple(op.values)
        scalars = tuple(self.scalar(v, index) for v in operands)
        name = op.name.removeprefix("flat.")
        return elementwise.apply(name, scalars, tuple(v.dtype for v in operands), result, self.emitter.library)

    def _gathered(self, op: Operation, index: Index) -> Scalar:
        """Return the element at the clamped indices, and at this index in the other dims."""
        x, *places = op.values
        tensor, sizes = self._whole[id(x)]
        rank = places[0].rank
        chosen = iter([self.scalar(p, index[:rank]) for p in places])
        rest = iter(index[rank:])
        at = []
        for d, size in enumerate(sizes):
            if d not in op.attributes["dims"]:
                at.append(mlir.arith.index_cast(s.index(), position(next(rest))))
                continue
            last = mlir.arith.subi(size, s.constant(s.index(), 1))
            place = mlir.arith.index_cast(s.index(), next(chosen))
            at.append(mlir.arith.minsi(mlir.arith.maxsi(place, s.constant(s.index(), 0)), last))
        return s.load(x.dtype, mlir.tensor.ExtractOp(tensor, at).result)

    def _covered(self, indices: Sequence[Index]) -> bool:
        plain = {c[0] for index in indices for c in index if c[1:] == (1, 0)}
        return all(d in plain for d in range(len(self.sizes)))


def position(component: Any) -> Any:
    """Return a component of an index as an i64 scalar, inside a body."""
    loop, scale, offset = component
    i64 = s.integer(64)
    if loop is None:
        return s.constant(i64, offset)
    value = mlir.arith.index_cast(i64, mlir.linalg.IndexOp(loop).result)
    if scale != 1:
        value = mlir.arith.muli(value, s.constant(i64, scale))
    return mlir.arith.addi(value, s.constant(i64, offset)) if offset else value


def static_sizes(dims: Sequence[Dim]) -> list[int]:
    dynamic = mlir.ir.ShapedType.get_dynamic_size()
    return [d if isinstance(d, int) else dynamic for d in dims]


def affine_map(rank: int, index: Index) -> Any:
    ir = mlir.ir
    parts = []
    for loop, scale, offset in index:
        if loop is None:
            parts.append(ir.AffineConstantExpr.get(offset))
            continue
        part = ir.AffineDimExpr.get(loop)
        part = part if scale == 1 else part * scale
        parts.append(part if offset == 0 else part + offset)
    return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, parts))


def mlir_location(name: str, location: Location) -> Any:
    """Return an MLIR location: the op's name at the user's line, when there is one."""
    ir = mlir.ir
    if not location.frames:
        return ir.Location.name(name)
    frame = location.frames[0]
    return ir.Location.name(name, ir.Location.file(frame.file, frame.line, 0))
