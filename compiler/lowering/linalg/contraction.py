"""Large contractions of floats: tiles of the result that stay in vector registers while the summed dims go by.

    for a block of the summed dims, a panel of some vectors of columns:
      p = b[block, panel], one vector after the other: a panel stays in the first cache
      for a tile of rows:
        acc = 0
        for each place in the summed block: acc[i] += broadcast(a[row i]) * p[place]
        c[tile] += acc

Sums are of the operands' own dtype, as eager's are, in blocks that are added up: no element is summed in one long row.
``a`` is read by element, through any view; ``b`` by vectors, along its last free dim or along a summed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from torchstone.compiler import mlir, optimization
from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.nest import LoopNest, Reader
from torchstone.compiler.lowering.linalg.panels import Panel
from torchstone.compiler.lowering.linalg.views import VIEWS, Index, is_view, loop

# Multiplications from which on tiles save more time than it takes to compile them.
LEAST_WORK = 1 << 17
# A tile fills the vector registers but for a panel of b, which stays in the first cache. Rows that are many more than
# registers cost five times as much.
NARROW, WIDE = (3, {64: 8, 32: 4}), (4, {64: 6})
# Places of the summed dims in a block, about.
SUMMED = 128
# Rows of a from which on a panel of b is read often enough to be packed.
OFTEN = 48


@cache
def register_bytes() -> int:
    """Return the width of this machine's vector registers."""
    try:
        return 64 if " avx512f" in Path("/proc/cpuinfo").read_text() else 32
    except OSError:
        return 32


class Tiles(Reader):
    """The loops of one contraction: numbered batch, rest of a, summed, rest of b, as ``reduce.contract`` has them."""

    def __init__(self, emitter: Any, op: Operation, sizes: Sequence[int], summed: range, along: int) -> None:
        """``along`` is the loop that vectors of b are read along."""
        super().__init__(emitter)
        self.op, self.sizes, self.summed, self.along = op, sizes, summed, along
        self.element = s.element(op.result.dtype)
        self.lanes = 8 * register_bytes() // op.result.dtype.bits
        self.vector = mlir.ir.VectorType.get([self.lanes], self.element)
        self.at: dict[int, Any] = {}
        # What the loops hand on: the result, and the packed panel if there is one.
        self.tensors: list[Any] = []
        # Where the block begins, and where the loops over the summed dims are in it.
        self.low: Any = None
        self.place: dict[int, Any] = {}
        self.row, self.column = summed.start - 1, len(sizes) - 1
        # A panel is of three vectors of columns, of four where those leave no rest.
        vectors = -(-sizes[self.column] // self.lanes)
        self.width, rows = WIDE if vectors % WIDE[0] == 0 and register_bytes() == 64 else NARROW
        self.rows = rows[register_bytes()]
        self.out = [d for d in range(len(sizes)) if d not in summed]
        size = sizes[summed.start]
        block = -(-size // min(size, max(1, round(prod(sizes[d] for d in summed) / SUMMED))))
        whole = self.lanes if along == summed.start else 1
        self.block = min(-(-block // whole) * whole, size)

    def loop(self, number: int) -> Any:
        return self.at[number]

    def build(self, a: tuple[Any, Index], b: tuple[Any, Index]) -> Any:
        """Return the result, a tensor."""
        self.a, self.b = a, b
        self.tensors = [self.emitter.empty(self.op.result.shape, self.element)]
        # What b is not read by goes inside of its panels, so that each is packed once.
        used = {n for c in b[1] for n, _ in c.terms}
        others = [d for d in self.out if d not in (self.row, self.column)]
        self.inner = [d for d in others if d not in used]
        self.packed = None
        rows = prod(self.sizes[d] for d in (self.row, *self.inner) if d in self.out)
        windows = any(len(c.terms) > 1 for c in b[1])  # packed, what they share would be there many times
        if self.along != self.column or (rows >= OFTEN and not windows):
            self.packed = Panel(self)
            self.tensors.append(self.packed.empty())
        self._inside([d for d in others if d in used], self._blocks)
        return self.tensors[0]

    def run(self, size: Any, step: int, body: Callable[[Any], None]) -> None:
        """Run a loop around ``body``, which is given where it is and changes ``tensors``."""
        size = s.constant(s.index(), size) if isinstance(size, int) else size
        op = mlir.scf.ForOp(s.constant(s.index(), 0), size, s.constant(s.index(), step), self.tensors)
        with mlir.ir.InsertionPoint(op.body):
            self.tensors = list(op.inner_iter_args)
            body(op.induction_variable)
            mlir.scf.YieldOp(self.tensors)
        self.tensors = list(op.results)

    def _over(self, number: int, size: int, step: int, body: Callable[[], None]) -> None:
        def at(place: Any) -> None:
            self.at[number] = place
            body()

        self.run(size, step, at)

    def _blocks(self) -> None:
        """Go over blocks of the first summed dim."""
        first = self.summed.start

        def block(low: Any) -> None:
            self.low = low
            self._columns()

        self.run(self.sizes[first], self.block, block)

    def count(self, number: int) -> Any:
        """Return how many places of a summed dim are in the block."""
        size = self.sizes[number]
        if number != self.summed.start or size % self.block == 0:
            return self.block if number == self.summed.start else size
        left = mlir.arith.subi(s.constant(s.index(), size), self.low)
        return mlir.arith.minsi(left, s.constant(s.index(), self.block))

    def _columns(self) -> None:
        """Go over panels of columns, then over what does not fill one."""
        size, panel = self.sizes[self.column], self.width * self.lanes
        whole = size - size % panel
        if whole:
            self._over(self.column, whole, panel, lambda: self._panel(self.width, fits=True))
        if rest := size - whole:
            self.at[self.column] = s.constant(s.index(), whole)
            vectors = -(-rest // self.lanes)
            self._panel(vectors, fits=rest == vectors * self.lanes)

    def _panel(self, vectors: int, *, fits: bool) -> None:
        if self.packed is not None:
            self.packed.fill(vectors, fits=fits)
        self._inside(self.inner, lambda: self._rows(vectors, fits=fits))

    def _inside(self, dims: Sequence[int], body: Callable[[], None]) -> None:
        """Run ``body`` in loops over these dims, one step at a time."""
        if not dims:
            return body()
        return self._over(dims[0], self.sizes[dims[0]], 1, lambda: self._inside(dims[1:], body))

    def _rows(self, vectors: int, *, fits: bool) -> None:
        if self.row not in self.out:  # a has no free dim
            return self._tile(1, vectors, fits=fits)
        size = self.sizes[self.row]
        whole = size - size % self.rows
        if whole:
            self._over(self.row, whole, self.rows, lambda: self._tile(self.rows, vectors, fits=fits))
        if size - whole:
            self.at[self.row] = s.constant(s.index(), whole)
            self._tile(size - whole, vectors, fits=fits)
        return None

    def _tile(self, rows: int, vectors: int, *, fits: bool) -> None:
        """Sum one tile in registers, then add it to the result. What does not fit is the last vector alone."""
        row, column = self.at.get(self.row), self.at[self.column]
        zero = mlir.vector.BroadcastOp(self.vector, s.constant(self.element, 0)).result
        places = [(i, j) for i in range(rows) for j in range(vectors)]
        inside = [fits or j + 1 < vectors for j in range(vectors)]

        def step(acc: list[Any]) -> list[Any]:
            right = [self._right(column, j, fits=inside[j]) for j in range(vectors)]
            out = []
            for i in range(rows):
                self.move(self.row, row, i)
                tensor, index = self.a
                scalar = mlir.tensor.ExtractOp(tensor, [self.position(x) for x in index]).result
                left = mlir.vector.BroadcastOp(self.vector, scalar).result
                out += [mlir.vector.FMAOp(left, right[j], acc[i * vectors + j]).result for j in range(vectors)]
            return out

        def move(i: int, j: int) -> None:
            self.move(self.row, row, i)
            self.move(self.column, column, j * self.lanes)

        acc = self._sum(list(self.summed), [zero] * len(places), step)
        out = tuple(loop(d) for d in self.out)
        if self.block < self.sizes[self.summed.start]:
            acc = self._added(acc, [(lambda i=i, j=j: move(i, j), inside[j]) for i, j in places], out)
        for (i, j), value in zip(places, acc, strict=True):
            move(i, j)
            self.tensors[0] = self.write(value, self.tensors[0], out, fits=inside[j])
        self.move(self.column, column, 0)
        self.move(self.row, row, 0)

    def _added(self, acc: list[Any], places: list[tuple[Callable[[], None], bool]], out: Index) -> list[Any]:
        """Return the sums with those of the blocks before; a place is how to move there, and whether a vector fits."""
        first = s.compare_int("eq", self.low, s.constant(s.index(), 0))
        op = mlir.scf.IfOp(first, [self.vector] * len(acc), has_else=True)
        with mlir.ir.InsertionPoint(op.then_block):
            mlir.scf.YieldOp(acc)
        with mlir.ir.InsertionPoint(op.else_block):
            sums = []
            for value, (move, fits) in zip(acc, places, strict=True):
                move()
                sums.append(mlir.arith.addf(self.read(self.tensors[0], out, fits=fits), value))
            mlir.scf.YieldOp(sums)
        return list(op.results)

    def _right(self, column: Any, j: int, *, fits: bool) -> Any:
        """Return a vector of b, inside the loops over the summed dims."""
        if self.packed is not None:
            return self.packed.vector(j)
        self.move(self.column, column, j * self.lanes)
        return self.read(*self.b, fits=fits)

    def move(self, number: int, start: Any, by: int) -> None:
        """Set a loop, if there is one, to what is so far behind a place."""
        if start is not None:
            self.at[number] = mlir.arith.addi(start, s.constant(s.index(), by)) if by else start

    def _sum(self, dims: list[int], acc: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
        if not dims:
            return step(acc)
        size = self.count(dims[0])
        size = s.constant(s.index(), size) if isinstance(size, int) else size
        op = mlir.scf.ForOp(s.constant(s.index(), 0), size, s.constant(s.index(), 1), acc)
        with mlir.ir.InsertionPoint(op.body):
            self.to_place(dims[0], op.induction_variable)
            mlir.scf.YieldOp(self._sum(dims[1:], list(op.inner_iter_args), step))
        return list(op.results)

    def to_place(self, number: int, place: Any) -> None:
        """Set a summed loop to a place in the block."""
        self.place[number] = place
        self.at[number] = mlir.arith.addi(self.low, place) if number == self.summed.start else place

    def _layout(self, rank: int, fits: bool) -> tuple[Any, Any]:
        ir = mlir.ir
        last = ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(rank - 1)]))
        return last, ir.ArrayAttr.get([ir.BoolAttr.get(fits)])

    def read(self, tensor: Any, index: Index, *, fits: bool) -> Any:
        """Read a vector along the last dim; what is past the end of the tensor reads as 0."""
        return self.read_at(tensor, [self.position(x) for x in index], fits=fits)

    def read_at(self, tensor: Any, at: list[Any], *, fits: bool = True) -> Any:
        layout, inside = self._layout(len(at), fits)
        return mlir.vector.TransferReadOp(self.vector, tensor, at, layout, s.constant(self.element, 0), inside).result

    def write(self, value: Any, tensor: Any, index: Index, *, fits: bool) -> Any:
        return self.write_at(value, tensor, [self.position(x) for x in index], fits=fits)

    def write_at(self, value: Any, tensor: Any, at: list[Any], *, fits: bool = True) -> Any:
        layout, inside = self._layout(len(at), fits)
        return mlir.vector.TransferWriteOp(tensor.type, value, tensor, at, layout, inside).result


def tiles_pay(work: int) -> bool:
    """Say whether tiles pay for so many multiplications; for any, where the time to compile them does not count."""
    return work >= LEAST_WORK or (work > 0 and optimization.at_once())


def tiled(e: Any, op: Operation, a: Index, b: Index, sizes: Sequence[Any], summed: range) -> Any | None:
    """Return the result of a contraction whose operands are read at these indices, None where tiles do not pay.

    ``sizes`` are those of the loops: batch, rest of a, summed, rest of b.
    """
    known = all(isinstance(size, int) for size in sizes)
    if op.result.dtype.name not in ("float32", "float64") or not known or not tiles_pay(prod(sizes)):
        return None
    column = len(sizes) - 1
    if not summed or column in summed or sizes[column] < 4:
        return None
    left, right = op.values
    lanes = 8 * register_bytes() // op.result.dtype.bits
    batch = [d for d in range(column + 1) if any(d == n for c in b for n, _ in c.terms)]
    source_b = _through(e, right, b)
    along = next((d for d in (column, *summed) if _along(source_b[1], d) and (d == column or sizes[d] >= lanes)), None)
    if along is None or _strides(source_b[0]):
        packed = _packed(e, right, b, [(d, sizes[d]) for d in batch], lanes)
        source_b, along = (packed, tuple(loop(d) for d in batch)), column
    e.count(sizes)
    return Tiles(e, op, sizes, summed, along).build(_through(e, left, a), source_b)


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
    while owner is not None and owner.name in ("tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice"):
        if owner.name == "tensor.extract_slice" and any(n != 1 for n in owner.attributes["static_strides"]):
            return True
        owner = getattr(owner.operands[0].owner, "operation", None)
    return False
