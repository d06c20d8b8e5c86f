"""``scan`` and ``sort``: what depends on the elements before it, or on the order of all."""

from __future__ import annotations

from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Operation
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.linalg import elementwise
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter
from torchstone.compiler.lowering.linalg.nest import LoopNest, SequentialLoops
from torchstone.compiler.lowering.linalg.reduce import lowest
from torchstone.compiler.lowering.linalg.scalars import Scalar
from torchstone.compiler.lowering.linalg.views import Index, loops


def scan(e: LinalgEmitter, op: Operation) -> list[Any]:
    """One loop nest, along ``dim`` in order, that keeps what is accumulated for every other index."""
    (x,) = op.values
    kind, dim = op.attributes["kind"], op.attributes["dim"]
    wide = _accumulated(x.dtype)
    start = {"sum": 0, "prod": 1}.get(kind)
    first = s.store(wide, s.literal(wide, lowest(wide, kind) if start is None else start))
    identity = loops(x.rank)
    others = tuple(c for d, c in enumerate(identity) if d != dim)
    nest = LoopNest(e, x.shape, (dim,))
    nest.read(x, identity)

    def body(old: list[Any]) -> list[Any]:
        term = s.cast(x.dtype, wide, nest.scalar(x, identity))
        total = _combine(e, kind, wide, s.load(wide, old[1]), term)
        return [s.store(x.dtype, s.cast(wide, x.dtype, total)), s.store(wide, total)]

    out = e.empty(x.shape, s.element(x.dtype))
    before = e.fill([size for d, size in enumerate(x.shape) if d != dim], first)
    return nest.build([(out, identity), (before, others)], body)[:1]


def _accumulated(dtype: DType) -> DType:
    """Return the dtype in which eager accumulates on a CPU: a wider one for floats."""
    if dtype.is_complex:
        return dt.complex128
    if not dtype.is_float:
        return dtype
    return dt.float32 if dtype.is_half else dt.float64


def _combine(e: LinalgEmitter, kind: str, dtype: DType, before: Scalar, x: Scalar) -> Scalar:
    if kind in ("sum", "prod"):
        name = {"sum": "add", "prod": "mul"}[kind]
        return elementwise.apply(name, (before, x), (dtype, dtype), dtype, e.library)
    relation = {"max": "ge", "min": "le"}[kind]
    if not dtype.is_float:
        later = s.compare_int(relation if dtype.is_signed else f"u{relation}", x, before)
    else:
        # No number compares with a NaN: it stays. Of zeros the last one is kept, as eager has it.
        later = mlir.arith.ori(s.compare_float(relation, x, before), s.is_nan(x))
    return mlir.arith.select(later, x, before)


def sort(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Merge sort, bottom up, of (integer key, index) pairs: equal keys are equal elements, smaller ones come first.

    The pairs lie with ``dim`` last; each row is merged to a buffer with runs twice as long, and from there back.
    """
    (x,) = op.values
    dim, descending = op.attributes["dim"], op.attributes["descending"]
    others = [d for d in range(x.rank) if d != dim]
    # Loop i runs over dim order[i] of x.
    order = [*others, dim]
    sizes = [x.shape[d] for d in order]
    identity = loops(x.rank)
    index: Index = tuple(identity[order.index(d)] for d in range(x.rank))
    key = _key_bits(x.dtype)
    elements = (s.integer(key), s.integer(64))

    nest = LoopNest(e, sizes)
    nest.read(x, index)
    pairs = nest.build(
        [(e.empty(sizes, element), identity) for element in elements],
        lambda _: [_key(x.dtype, nest.scalar(x, index), descending=descending), nest.number(identity[-1])],
    )
    spare = [e.empty(sizes[-1:], element) for element in elements]
    merge = _Merge(e, x.shape[dim])
    rows = [e.size(d) for d in sizes[:-1]]
    e.count([*sizes, merge.rounds if isinstance(merge.rounds, int) else sizes[-1]])
    sorted_ = merge.steps.build(rows, [*pairs, *spare], merge.row)[1]

    whole = LoopNest(e, sizes)
    whole.extra([sorted_])
    source = e.tensor(x)

    def body(_: list[Any]) -> list[Any]:
        (place,) = whole.extras
        at = [whole.position(c) for c in index]
        at[dim] = mlir.arith.index_cast(s.index(), place)
        return [mlir.tensor.ExtractOp(source, at).result, place]

    return whole.build([(e.empty(x.shape, el), index) for el in (s.element(x.dtype), elements[1])], body)


def _key_bits(dtype: DType) -> int:
    return s.compute_bits(dtype) if dtype.is_float else dtype.bits


def _key(dtype: DType, x: Scalar, *, descending: bool) -> Any:
    """Return a signed integer that orders as the elements do: zeros are equal, NaN is the largest."""
    arith, bits = mlir.arith, _key_bits(dtype)
    kind = s.integer(bits)
    if dtype.is_float:
        x = s.widen(dtype, x)
        zero = s.constant(x.type, 0)
        code = arith.bitcast(kind, arith.select(s.compare_float("eq", x, zero), zero, x))
        # The magnitude of a negative number is turned round.
        largest = s.constant(kind, (1 << (bits - 1)) - 1)
        negative = arith.shrsi(code, s.constant(kind, bits - 1))
        key = arith.select(s.is_nan(x), largest, arith.xori(code, arith.andi(negative, largest)))
    else:
        key = s.store(dtype, x)
        if not (dtype.is_signed or dtype.is_bool):
            key = arith.xori(key, s.constant(kind, 1 << (bits - 1)))
    return arith.xori(key, s.constant(kind, -1)) if descending else key


class _Merge:
    """Sorts rows of ``size`` pairs; ``rounds`` pairs of passes are enough, each pass doubling the sorted runs."""

    def __init__(self, e: LinalgEmitter, size: Dim) -> None:
        self.steps = SequentialLoops(e)
        self.size = e.size(size)
        self.last = mlir.arith.subi(self.size, _index(1))
        self.rounds: Any = ((size - 1).bit_length() + 1) // 2 if isinstance(size, int) else self._rounds()

    def _rounds(self) -> Any:
        """(bits of (size - 1) + 1) / 2, of a size known at run time."""
        arith, i64 = mlir.arith, s.integer(64)
        last = arith.maxsi(arith.index_cast(i64, self.last), s.constant(i64, 0))
        bits = arith.subi(s.constant(i64, 65), mlir.math.ctlz(last))
        return arith.index_cast(s.index(), arith.shrui(bits, s.constant(i64, 1)))

    def row(self, tensors: list[Any]) -> list[Any]:
        """Sort the row that the loops around are at."""
        arith = mlir.arith
        row = [self.steps.loop(d) for d in range(tensors[0].type.rank - 1)]
        rounds = _index(self.rounds) if isinstance(self.rounds, int) else self.rounds
        loop = mlir.scf.ForOp(_index(0), rounds, _index(1), tensors)
        with mlir.ir.InsertionPoint(loop.body):
            width = arith.shli(_index(1), arith.muli(loop.induction_variable, _index(2)))
            pairs, spare = list(loop.inner_iter_args)[:2], list(loop.inner_iter_args)[2:]
            spare = self._pass(pairs, row, spare, [], width)
            pairs = self._pass(spare, [], pairs, row, arith.muli(width, _index(2)))
            mlir.scf.YieldOp([*pairs, *spare])
        return list(loop.results)

    def _pass(self, source: list[Any], source_row: list[Any], target: list[Any], row: list[Any], width: Any) -> Any:
        """Merge every two runs of ``width`` pairs."""
        arith = mlir.arith
        step = arith.muli(width, _index(2))
        runs = mlir.scf.ForOp(_index(0), self.size, step, target)
        with mlir.ir.InsertionPoint(runs.body):
            low = runs.induction_variable
            middle = arith.minsi(arith.addi(low, width), self.size)
            high = arith.minsi(arith.addi(low, step), self.size)
            loop = mlir.scf.ForOp(low, high, _index(1), [low, middle, *runs.inner_iter_args])
            with mlir.ir.InsertionPoint(loop.body):
                left, right, *out = loop.inner_iter_args
                # What is read beyond the end of a run is not used.
                a, b = (self._read(source[0], source_row, arith.minsi(i, self.last)) for i in (left, right))
                first = arith.ori(s.compare_int("ge", right, high), s.compare_int("le", a, b))
                first = arith.andi(first, s.compare_int("lt", left, middle))
                place = self._read(source[1], source_row, arith.select(first, left, right))
                at = [*row, loop.induction_variable]
                pair = (arith.select(first, a, b), place)
                out = [mlir.tensor.InsertOp(v, t, at).result for v, t in zip(pair, out, strict=True)]
                one = arith.index_cast(s.index(), arith.extui(s.integer(64), first))
                left, right = arith.addi(left, one), arith.addi(right, arith.subi(_index(1), one))
                mlir.scf.YieldOp([left, right, *out])
            mlir.scf.YieldOp(list(loop.results)[2:])
        return list(runs.results)

    def _read(self, tensor: Any, row: list[Any], at: Any) -> Any:
        return mlir.tensor.ExtractOp(tensor, [*row, at]).result


def _index(value: int) -> Any:
    return s.constant(s.index(), value)
