"""Large contractions of floats: tiles of the result that stay in vector registers while the summed dims go by.

    for a block of columns, a block of the summed dims, a tile of rows, a panel of some vectors of columns:
      acc = 0
      for each place in the summed block: acc[i] += broadcast(a[row i]) * b[panel]
      c[tile] += acc

Sums are of the operands' own dtype, as eager's are, in blocks that are added up: no element is summed in one long row.
``a`` is read by element, through any view; ``b`` by vectors along its last free dim, packed first if they lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.nest import LoopNest, Reader
from torchstone.compiler.lowering.linalg.views import VIEWS, Index, is_view, loop
from torchstone.compiler.runtime import mlir

# Multiplications from which on tiles pay; below, compiling them takes longer than they save.
LEAST_WORK = 1 << 17
# A tile fills the vector registers but for a panel of b; a block of b stays in the second cache. Rows that are many
# more than registers cost five times as much.
NARROW, WIDE = (3, {64: 8, 32: 4}), (4, {64: 6})
COLUMNS, SUMMED = 192, 128


@cache
def register_bytes() -> int:
    """Return the width of this machine's vector registers."""
    try:
        return 64 if " avx512f" in Path("/proc/cpuinfo").read_text() else 32
    except OSError:
        return 32


class Tiles(Reader):
    """The loops of one contraction: numbered batch, rest of a, summed, rest of b, as ``reduce.contract`` has them."""

    def __init__(self, emitter: Any, op: Operation, sizes: Sequence[int], summed: range) -> None:
        super().__init__(emitter)
        self.op, self.sizes, self.summed = op, sizes, summed
        self.element = s.element(op.result.dtype)
        self.lanes = 8 * register_bytes() // op.result.dtype.bits
        self.vector = mlir.ir.VectorType.get([self.lanes], self.element)
        self.at: dict[int, Any] = {}
        self.row, self.column = summed.start - 1, len(sizes) - 1
        # A panel is of three vectors of columns, of four where those leave no rest.
        vectors = -(-sizes[self.column] // self.lanes)
        self.panel, rows = WIDE if vectors % WIDE[0] == 0 and register_bytes() == 64 else NARROW
        self.rows = rows[register_bytes()]
        self.out = [d for d in range(len(sizes)) if d not in summed]

    def loop(self, number: int) -> Any:
        return self.at[number]

    def build(self, a: tuple[Any, Index], b: tuple[Any, Index]) -> Any:
        """Return the result, a tensor."""
        self.a, self.b = a, b
        shape = self.op.result.shape
        inner = prod(self.sizes[d] for d in self.summed[1:])
        block = max(1, SUMMED // inner)
        self.blocked = self.sizes[self.summed.start] > 2 * block
        zero = s.constant(self.element, 0)
        c = self.emitter.fill(shape, zero) if self.blocked else self.emitter.empty(shape, self.element)
        outer = [d for d in self.out if d not in (self.row, self.column)]
        return self._each(outer, c, lambda c: self._columns(c, block))

    def _each(self, dims: Sequence[int], c: Any, body: Callable[[Any], Any]) -> Any:
        """Run loops one step at a time around ``body``."""
        if not dims:
            return body(c)
        return self._for(dims[0], 0, self.sizes[dims[0]], 1, c, lambda c: self._each(dims[1:], c, body))

    def _for(self, number: int, low: Any, high: Any, step: int, c: Any, body: Callable[[Any], Any]) -> Any:
        low, high = (s.constant(s.index(), x) if isinstance(x, int) else x for x in (low, high))
        op = mlir.scf.ForOp(low, high, s.constant(s.index(), step), [c])
        with mlir.ir.InsertionPoint(op.body):
            self.at[number] = op.induction_variable
            mlir.scf.YieldOp([body(op.inner_iter_args[0])])
        return op.results[0]

    def _columns(self, c: Any, block: int) -> Any:
        """Go over blocks of columns, then over what does not fill a panel."""
        size, panel = self.sizes[self.column], self.panel * self.lanes
        whole = size - size % panel

        def columns(c: Any) -> Any:
            low = self.at[self.column]
            high = self._least(low, COLUMNS, whole)
            return self._summed(c, block, lambda c, count: self._panels(c, low, high, count))

        if whole:
            c = self._for(self.column, 0, whole, COLUMNS, c, columns)
        if rest := size - whole:
            self.at[self.column] = s.constant(s.index(), whole)
            vectors = -(-rest // self.lanes)
            c = self._summed(c, block, lambda c, rows: self._tile(c, rows, vectors, fits=rest == vectors * self.lanes))
        return c

    def _panels(self, c: Any, low: Any, high: Any, rows: int) -> Any:
        step = self.panel * self.lanes
        return self._for(self.column, low, high, step, c, lambda c: self._tile(c, rows, self.panel, fits=True))

    def _summed(self, c: Any, block: int, body: Callable[[Any, int], Any]) -> Any:
        """Go over blocks of the first summed dim and over tiles of rows; ``body`` is given how many rows a tile has."""
        first, size = self.summed.start, self.sizes[self.summed.start]

        def part(c: Any) -> Any:
            self.low = self.at[first]
            self.high = self._least(self.low, block, size)
            return self._rows(c, body)

        if self.blocked:
            return self._for(first, 0, size, block, c, part)
        self.low, self.high = s.constant(s.index(), 0), s.constant(s.index(), size)
        return self._rows(c, body)

    def _rows(self, c: Any, body: Callable[[Any, int], Any]) -> Any:
        if self.row not in self.out:  # a has no free dim
            return body(c, 1)
        size, rows = self.sizes[self.row], self.rows
        whole = size - size % rows
        if whole:
            c = self._for(self.row, 0, whole, rows, c, lambda c: body(c, rows))
        if size - whole:
            self.at[self.row] = s.constant(s.index(), whole)
            c = body(c, size - whole)
        return c

    def _least(self, low: Any, step: int, limit: int) -> Any:
        return mlir.arith.minsi(mlir.arith.addi(low, s.constant(s.index(), step)), s.constant(s.index(), limit))

    def _tile(self, c: Any, rows: int, vectors: int, *, fits: bool) -> Any:
        """Sum one tile in registers, then add it to the result."""
        arith, vector = mlir.arith, mlir.vector
        row, column = self.at.get(self.row), self.at[self.column]
        zero = s.constant(self.element, 0)
        acc = [vector.BroadcastOp(self.vector, zero).result] * (rows * vectors)

        def step(acc: list[Any]) -> list[Any]:
            right = []
            for j in range(vectors):
                self._move(self.column, column, j * self.lanes)
                right.append(self._read(*self.b, fits=fits))
            out = []
            for i in range(rows):
                if row is not None:
                    self._move(self.row, row, i)
                tensor, index = self.a
                scalar = mlir.tensor.ExtractOp(tensor, [self.position(x) for x in index]).result
                left = vector.BroadcastOp(self.vector, scalar).result
                out += [vector.FMAOp(left, right[j], acc[i * vectors + j]).result for j in range(vectors)]
            return out

        acc = self._sum(list(self.summed), acc, step)
        for i in range(rows):
            for j in range(vectors):
                if row is not None:
                    self._move(self.row, row, i)
                self._move(self.column, column, j * self.lanes)
                place = tuple(loop(d) for d in self.out)
                value = acc[i * vectors + j]
                if self.blocked:
                    value = arith.addf(self._read(c, place, fits=fits), value)
                c = self._write(value, c, place, fits=fits)
        self.at[self.column] = column
        if row is not None:
            self.at[self.row] = row
        return c

    def _move(self, number: int, start: Any, by: int) -> None:
        self.at[number] = mlir.arith.addi(start, s.constant(s.index(), by)) if by else start

    def _sum(self, dims: list[int], acc: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
        if not dims:
            return step(acc)
        low, high = s.constant(s.index(), 0), s.constant(s.index(), self.sizes[dims[0]])
        if dims[0] == self.summed.start:
            low, high = self.low, self.high
        op = mlir.scf.ForOp(low, high, s.constant(s.index(), 1), acc)
        with mlir.ir.InsertionPoint(op.body):
            self.at[dims[0]] = op.induction_variable
            mlir.scf.YieldOp(self._sum(dims[1:], list(op.inner_iter_args), step))
        return list(op.results)

    def _layout(self, rank: int, fits: bool) -> tuple[Any, Any]:
        ir = mlir.ir
        last = ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(rank - 1)]))
        return last, ir.ArrayAttr.get([ir.BoolAttr.get(fits)])

    def _read(self, tensor: Any, index: Index, *, fits: bool) -> Any:
        """Read a vector along the last dim; what is past the end of the tensor reads as 0."""
        at = [self.position(x) for x in index]
        layout, inside = self._layout(len(index), fits)
        return mlir.vector.TransferReadOp(self.vector, tensor, at, layout, s.constant(self.element, 0), inside).result

    def _write(self, value: Any, tensor: Any, index: Index, *, fits: bool) -> Any:
        at = [self.position(x) for x in index]
        layout, inside = self._layout(len(index), fits)
        return mlir.vector.TransferWriteOp(tensor.type, value, tensor, at, layout, inside).result


def tiled(e: Any, op: Operation, a: Index, b: Index, sizes: Sequence[Any], summed: range) -> Any | None:
    """Return the result of a contraction whose operands are read at these indices, None where tiles do not pay.

    ``sizes`` are those of the loops: batch, rest of a, summed, rest of b.
    """
    known = all(isinstance(size, int) for size in sizes)
    if op.result.dtype.name not in ("float32", "float64") or not known or prod(sizes) < LEAST_WORK:
        return None
    column = len(sizes) - 1
    if not summed or column in summed or sizes[column] < 4:
        return None
    left, right = op.values
    tiles = Tiles(e, op, sizes, summed)
    batch = [d for d in range(column + 1) if any(d == n for c in b for n, _ in c.terms)]
    source_b = _through(e, right, b)
    if not _along(source_b[1], column) or _strides(source_b[0]):
        packed = _packed(e, right, b, [(d, sizes[d]) for d in batch], tiles.lanes)
        source_b = packed, tuple(loop(d) for d in batch)
    e.count(sizes)
    return tiles.build(_through(e, left, a), source_b)


def _packed(e: Any, value: Value, index: Index, dims: list[tuple[int, int]], lanes: int) -> Any:
    """Return a tensor of the operand's elements in the order of these loops, a vector of the last one at a time.

    So as many rows of the operand are gone through side by side as a vector has lanes, each from its start to its end.
    """
    *outer, (last, size) = dims
    count = len(outer)
    at = {number: loop(i) for i, (number, _) in enumerate(outer)}
    if size % lanes:
        sizes, column = [n for _, n in dims], loop(count)
    else:
        sizes, column = [size // lanes, *(n for _, n in outer), lanes], loop(0) * lanes + loop(count + 1)
        at = {number: loop(i + 1) for i, (number, _) in enumerate(outer)}
    at[last] = column
    place = tuple(at[number] for ((number, _),) in (c.terms for c in index))
    nest = LoopNest(e, sizes)
    nest.read(value, place)
    shape = [n for _, n in dims]
    target = (e.empty(shape, s.element(value.dtype)), tuple(at[number] for number, _ in dims))
    return nest.build([target], lambda _: [nest.scalar(value, place)])[0]


def _through(e: Any, value: Value, index: Index) -> tuple[Any, Index]:
    """Return the tensor that a value at an index is read from, through views, and the index there."""
    op = e.producers.get(id(value))
    while id(value) not in e.values and op is not None and op.name in VIEWS and is_view(op):
        value, index = next(op.values), VIEWS[op.name](op, index)
        op = e.producers.get(id(value))
    return e.tensor(value), index


def _along(index: Index, number: int) -> bool:
    """Say whether neighbours along a loop are neighbours in the last dim."""
    where = [i for i, c in enumerate(index) if any(d == number for d, _ in c.terms)]
    return where == [len(index) - 1] and (number, 1) in index[-1].terms


def _strides(tensor: Any) -> bool:
    """Say whether elements of the last dim may lie apart in memory: a slice is not copied."""
    owner = getattr(tensor.owner, "operation", None)
    while owner is not None and owner.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        owner = getattr(owner.operands[0].owner, "operation", None)
    return owner is not None and owner.name == "tensor.extract_slice"
