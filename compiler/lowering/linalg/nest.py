"""Code that visits every element: what it reads is computed on the spot, as far as the plan fuses it.

A ``LoopNest`` is a ``linalg.generic``. ``SequentialLoops`` are nested ``scf.for`` loops, for what must run in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import elementwise, loop_fusion
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.scalars import Scalar
from torchstone.compiler.lowering.linalg.views import VIEWS, Component, Index, is_view, loop, loops

if TYPE_CHECKING:
    from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter


class Reader:
    """Reads values in the body of loops: first ``read`` what it needs, then ask for ``scalar``s inside."""

    def __init__(self, emitter: LinalgEmitter) -> None:
        self.emitter = emitter
        self._inputs: dict[tuple[int, Index], tuple[Any, Value]] = {}
        self._seen: set[tuple[int, Index]] = set()
        self._scalars: dict[tuple[int, Index], Scalar] = {}
        # Tensors read at computed places, with their sizes.
        self._whole: dict[int, tuple[Any, list[Any]]] = {}

    def loop(self, number: int) -> Any:
        """Return the ``index`` that a loop is at, inside the body."""
        raise NotImplementedError

    def read(self, value: Value, index: Index) -> None:
        """Make what ``value`` at ``index`` is computed from an input of the loops."""
        key = (id(value), index)
        if key in self._seen:
            return
        self._seen.add(key)
        op = self.emitter.producers.get(id(value))
        if id(value) in self.emitter.values or op is None or not loop_fusion.is_fused(op):
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

    def scalar(self, value: Value, index: Index) -> Scalar:
        """Return ``value`` at ``index`` inside the body; only what was ``read``."""
        key = (id(value), index)
        if key not in self._scalars:
            self._scalars[key] = self._compute(value, index)
        return self._scalars[key]

    def position(self, component: Component) -> Any:
        """Return a component of an index as an ``index``, inside the body."""
        total = None
        for number, scale in component.terms:
            term = self.loop(number)
            term = term if scale == 1 else mlir.arith.muli(term, s.constant(s.index(), scale))
            total = term if total is None else mlir.arith.addi(total, term)
        if total is None or component.offset:
            offset = s.constant(s.index(), component.offset)
            total = offset if total is None else mlir.arith.addi(total, offset)
        return total

    def number(self, component: Component) -> Any:
        """Return a component of an index as an i64 scalar, inside the body."""
        return mlir.arith.index_cast(s.integer(64), self.position(component))

    def _compute(self, value: Value, index: Index) -> Scalar:
        op = self.emitter.producers[id(value)]
        with self.emitter.location(op):
            if op.name in VIEWS and is_view(op):
                return self.scalar(next(op.values), VIEWS[op.name](op, index))
            if op.name == "flat.constant":
                return s.literal(value.dtype, op.attributes["value"])
            if op.name == "flat.iota":
                return s.cast(dt.int64, value.dtype, self.number(index[0]))
            if op.name == "flat.gather":
                return self._gathered(op, index)
            operands = tuple(op.values)
            scalars = tuple(self.scalar(v, index) for v in operands)
            name, types = op.name.removeprefix("flat."), tuple(v.dtype for v in operands)
            return elementwise.apply(name, scalars, types, value.dtype, self.emitter.library)

    def _gathered(self, op: Operation, index: Index) -> Scalar:
        """Return the element at the clamped indices, and at this index in the other dims."""
        arith, zero = mlir.arith, s.constant(s.index(), 0)
        x, *places = op.values
        tensor, sizes = self._whole[id(x)]
        rank = places[0].rank
        chosen = iter([self.scalar(p, index[:rank]) for p in places])
        rest = iter(index[rank:])
        at = []
        for d, size in enumerate(sizes):
            if d in op.attributes["dims"]:
                last = arith.subi(size, s.constant(s.index(), 1))
                at.append(arith.minsi(arith.maxsi(arith.index_cast(s.index(), next(chosen)), zero), last))
            else:
                at.append(self.position(next(rest)))
        return s.load(x.dtype, mlir.tensor.ExtractOp(tensor, at).result)


class LoopNest(Reader):
    """One ``linalg.generic``: ``build`` it after ``read``ing what the body needs."""

    def __init__(self, emitter: LinalgEmitter, sizes: Sequence[Dim], reduced: Sequence[int] = ()) -> None:
        super().__init__(emitter)
        self.sizes = tuple(sizes)
        self.reduced = frozenset(reduced)
        self._more: list[Any] = []
        self.extras: list[Any] = []

    def loop(self, number: int) -> Any:
        return mlir.linalg.IndexOp(number).result

    def extra(self, tensors: Sequence[Any]) -> None:
        """Read tensors of the nest's own shape that are no IR values; inside the body ``extras`` are their elements."""
        self._more.extend(tensors)

    def build(self, outputs: Sequence[tuple[Any, Index]], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Emit the nest and return its results.

        ``outputs`` are the initial tensors and where each iteration writes. ``body`` is given the elements of the
        outputs and returns the new ones; in it, ``scalar`` gives what was ``read``.
        """
        ir = mlir.ir
        self.emitter.count(self.sizes)
        keys = list(self._inputs)
        tensors = [*(self._trimmed(*self._inputs[k], k[1]) for k in keys), *self._more]
        indices = [*(k[1] for k in keys), *(loops(len(self.sizes)) for _ in self._more)]
        told = {c.loop for index in (*indices, *(i for _, i in outputs)) for c in index}
        if untold := [d for d in range(len(self.sizes)) if d not in told]:
            # No operand has a dim of these loops: give the sizes by a tensor that nothing reads.
            tensors.append(self.emitter.empty([self.sizes[d] for d in untold], s.integer(8)))
            indices.append(tuple(loop(d) for d in untold))
        maps = [affine_map(len(self.sizes), i) for i in (*indices, *(i for _, i in outputs))]
        kinds = ["reduction" if d in self.reduced else "parallel" for d in range(len(self.sizes))]
        iterators = [_iterator(kind) for kind in kinds]
        targets = [t for t, _ in outputs]
        attributes = {
            "indexing_maps": ir.ArrayAttr.get(maps),
            "iterator_types": ir.ArrayAttr.get(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(tensors), len(targets)]),
        }
        # By name: the class of the op takes twice the time.
        op = ir.Operation.create(
            "linalg.generic", [t.type for t in targets], [*tensors, *targets], attributes, regions=1
        )
        types = [t.type.element_type for t in (*tensors, *targets)]
        block = op.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
        arguments = list(block.arguments)
        with ir.InsertionPoint(block):
            for position, key in enumerate(keys):
                self._scalars[key] = s.load(self._inputs[key][1].dtype, arguments[position])
            self.extras = arguments[len(keys) : len(keys) + len(self._more)]
            ir.Operation.create("linalg.yield", [], body(arguments[len(tensors) :]))
        return list(op.results)

    def _trimmed(self, tensor: Any, value: Value, index: Index) -> Any:
        """Return the part of an input that the loops reach: a dim read at a loop and no more tells that loop's size.

        (The windows of a dim may leave some elements at its end, and one window of them has only inner places.)
        """
        e = self.emitter
        sizes = [size if c.loop is None else self.sizes[c.loop] for c, size in zip(index, value.shape, strict=True)]
        if sizes == list(value.shape):
            return tensor
        lengths, values = e.mixed(sizes)
        kind, none = e.type(TensorType(tuple(sizes), value.dtype)), [0] * len(sizes)
        return mlir.tensor.ExtractSliceOp(kind, tensor, [], values, [], none, lengths, [1] * len(sizes)).result


class SequentialLoops(Reader):
    """Loops that run one after the other, each handing tensors on to the next, in row-major order."""

    def __init__(self, emitter: LinalgEmitter) -> None:
        super().__init__(emitter)
        self._at: list[Any] = []

    def loop(self, number: int) -> Any:
        return self._at[number]

    def scalar(self, value: Value, index: Index) -> Scalar:
        key = (id(value), index)
        if key in self._inputs and key not in self._scalars:
            tensor, _ = self._inputs[key]
            raw = mlir.tensor.ExtractOp(tensor, [self.position(c) for c in index]).result
            self._scalars[key] = s.load(value.dtype, raw)
        return super().scalar(value, index)

    def build(self, sizes: Sequence[Any], tensors: Sequence[Any], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Emit loops over ``sizes`` (``index`` values), inside those being built, and return the last tensors.

        ``body`` is given the tensors as they are and returns the new ones.
        """
        if not sizes:
            return body(list(tensors))
        zero, one = (s.constant(s.index(), i) for i in (0, 1))
        loop = mlir.scf.ForOp(zero, sizes[0], one, list(tensors))
        with mlir.ir.InsertionPoint(loop.body):
            self._at.append(loop.induction_variable)
            mlir.scf.YieldOp(self.build(sizes[1:], list(loop.inner_iter_args), body))
            self._at.pop()
        return list(loop.results)


@cache
def _iterator(kind: str) -> Any:
    return mlir.ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")


@lru_cache(maxsize=4096)
def affine_map(rank: int, index: Index) -> Any:
    ir = mlir.ir
    parts = []
    for component in index:
        part = ir.AffineConstantExpr.get(component.offset)
        terms = [ir.AffineDimExpr.get(number) * scale for number, scale in component.terms]
        parts.append(sum(terms, part))
    return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, parts))
