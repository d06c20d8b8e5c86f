"""Primitives that move elements to other places: slices, joins, padding, reshapes, and constants with many values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dims import Dim, mod, product
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter
from torchstone.compiler.lowering.linalg.nest import LoopNest
from torchstone.compiler.lowering.linalg.views import loops


def slice_(e: LinalgEmitter, op: Operation) -> list[Any]:
    (x,) = op.values
    if 0 in x.shape:  # MLIR has no slice of what is empty, be the slice's own size one of run time
        return [e.empty(op.result.shape, s.element(op.result.dtype))]
    start, sizes, stride = op.attributes["start"], op.result.shape, op.attributes["stride"]
    (offsets, offset_values), (lengths, length_values) = e.mixed(start), e.mixed(sizes)
    result = e.type(op.result.tensor)
    return [
        mlir.tensor.ExtractSliceOp(
            result, e.tensor(x), offset_values, length_values, [], offsets, lengths, list(stride)
        ).result
    ]


def insert(e: LinalgEmitter, source: Any, target: Any, offset: Sequence[Dim], shape: Sequence[Dim]) -> Any:
    """Return ``target`` with ``source`` written at ``offset``."""
    (offsets, offset_values), (lengths, length_values) = e.mixed(offset), e.mixed(shape)
    return mlir.tensor.InsertSliceOp(
        source, target, offset_values, length_values, [], offsets, lengths, [1] * len(lengths)
    ).result


AT_ONCE = 16
"""Tensors that are joined at once. MLIR's bufferization compares the reads and writes of what shares a buffer with each
other, and follows each back to its begin: it takes time by the cube of their number."""


def concat(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Joined one after the other in one buffer; many of them in groups first."""
    parts = [(e.tensor(x), x.shape) for x in op.values if 0 not in x.shape]
    while len(parts) > AT_ONCE:
        rows = [parts[at : at + AT_ONCE] for at in range(0, len(parts), AT_ONCE)]
        parts = [_joined(e, row, op) if len(row) > 1 else row[0] for row in rows]
    return [_joined(e, parts, op, op.result.shape)[0]]


def _joined(
    e: LinalgEmitter, parts: Sequence[tuple[Any, Sequence[Dim]]], op: Operation, shape: Sequence[Dim] | None = None
) -> tuple[Any, Sequence[Dim]]:
    dim = op.attributes["dim"]
    if shape is None:
        shape = list(parts[0][1])
        for _, other in parts[1:]:
            shape[dim] = shape[dim] + other[dim]
    target, offset = e.empty(shape, s.element(op.result.dtype)), list[Dim]([0]) * len(shape)
    for tensor, sizes in parts:
        target = insert(e, tensor, target, offset, sizes)
        offset[dim] = offset[dim] + sizes[dim]
    return target, shape


def pad(e: LinalgEmitter, op: Operation) -> list[Any]:
    x, value = op.values
    raw = mlir.tensor.ExtractOp(e.tensor(value), []).result
    target = e.fill(op.result.shape, raw)
    if 0 in x.shape:
        return [target]
    return [insert(e, e.tensor(x), target, op.attributes["low"], x.shape)]


def reverse(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Reverse along run-time sizes: element i is read at size - 1 - i."""
    (x,) = op.values
    source, shape = e.tensor(x), op.result.shape
    last = {d: mlir.arith.subi(e.size(shape[d]), s.constant(s.index(), 1)) for d in op.attributes["dims"]}
    element = s.element(x.dtype)

    def body(_: list[Any]) -> list[Any]:
        at = [mlir.linalg.IndexOp(d).result for d in range(len(shape))]
        at = [mlir.arith.subi(last[d], i) if d in last else i for d, i in enumerate(at)]
        return [mlir.tensor.ExtractOp(source, at).result]

    return LoopNest(e, shape).build([(e.empty(shape, element), loops(len(shape)))], body)


def constant(e: LinalgEmitter, op: Operation) -> list[Any]:
    ir = mlir.ir
    value, dtype = op.attributes["value"], op.result.dtype
    element = s.element(dtype)
    kind = e.type(op.result.tensor)
    if dtype.is_complex or s.is_coded(dtype):
        elements = [s.store(dtype, s.literal(dtype, v)) for v in value]
        return [mlir.tensor.FromElementsOp(kind, elements).result]
    attributes = [_attribute(element, v) for v in value]
    return [mlir.arith.ConstantOp(kind, ir.DenseElementsAttr.get(attributes, kind)).result]


def _attribute(element: Any, value: Any) -> Any:
    ir = mlir.ir
    if isinstance(element, ir.IntegerType):
        width = element.width
        value = int(value) & ((1 << width) - 1)
        return ir.IntegerAttr.get(element, value - (1 << width) if value >> (width - 1) else value)
    return ir.FloatAttr.get(element, float(value))


def reshape(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Split both shapes into groups of equal element counts, collapse each group and expand it again."""
    (x,) = op.values
    return [reshaped(e, e.tensor(x), x.tensor, op.result.tensor)]


def groups(source: Sequence[Dim], target: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Pair runs of dims of two shapes that hold the same number of elements; as many runs as can be decided.

    Every dim is in one run, and no run is empty on either side. Neither shape is of rank 0, nor has a size 0.
    """
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        left, right = [i], [j]
        i, j = i + 1, j + 1
        while (a := _product(source, left)) != (b := _product(target, right)):
            if i == len(source) and j == len(target):
                break
            if j == len(target) or (i < len(source) and _is_smaller(a, b)):
                left.append(i)
                i += 1
            else:
                right.append(j)
                j += 1
        out.append((left, right))
    # What is left over are ones: they belong to the last run.
    out[-1][0].extend(range(i, len(source)))
    out[-1][1].extend(range(j, len(target)))
    return out


def _is_smaller(a: Dim, b: Dim) -> bool:
    """Say which of two different counts must grow to become equal; a symbolic one that divides the other does."""
    return a < b if isinstance(a, int) and isinstance(b, int) else mod(b, a) == 0


def _product(shape: Sequence[Dim], dims: Sequence[int]) -> Dim:
    return product([shape[d] for d in dims])


def reshaped(e: LinalgEmitter, tensor: Any, source: TensorType, target: TensorType) -> Any:
    if 0 in target.shape or 0 in source.shape:
        return e.empty(target.dims, s.element(target.dtype))
    if not source.rank or not target.rank:
        runs: list[tuple[list[int], list[int]]] = []
    else:
        runs = groups(source.dims, target.dims)
    middle = TensorType(tuple(_product(target.dims, right) for _, right in runs), source.dtype)
    if middle.rank < source.rank:
        tensor = mlir.tensor.CollapseShapeOp(e.type(middle), tensor, _reassociation(left for left, _ in runs)).result
    if middle.rank < target.rank:
        static, values = e.mixed(target.dims)
        parts = _reassociation(right for _, right in runs)
        tensor = mlir.tensor.ExpandShapeOp(e.type(target), tensor, parts, values, static).result
    return tensor


def _reassociation(runs: Any) -> Any:
    ir = mlir.ir
    i64 = s.integer(64)
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in run]) for run in runs])
