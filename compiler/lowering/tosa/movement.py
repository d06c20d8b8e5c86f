"""Movement primitives in TOSA. All are exact, of every dtype TOSA has."""

from __future__ import annotations

import numpy as np

from torchstone.compiler.ir import Operation
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter
from torchstone.compiler.lowering.tosa.table import TosaRule, names
from torchstone.compiler.transforms.legalizations.indexing import is_row_gather

# dtype -> the numpy dtype of the same bits, which is how MLIR takes many numbers at once.
_BITS = {
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float16": "float16", "float32": "float32",
}  # fmt: skip


def _broadcast(e: TosaEmitter, op: Operation) -> Handle:
    """Size 1 in the dims that are new or repeated: elementwise ops repeat them, ``full`` does for the others."""
    (value,) = op.values
    x, aligned = e.thin(value), [1] * len(op.attributes["shape"])
    for size, dim in zip(e.shape(x), op.attributes["dims"], strict=True):
        aligned[dim] = size
    if id(value) in e.numbers:
        e.numbers[id(op.result)] = e.numbers[id(value)]
        return e.constant(e.numbers[id(value)], aligned, value.dtype)
    return x if value.rank == len(aligned) else e.reshape(x, aligned)


def _takes_broadcast(op: Operation) -> str | None:
    (value,) = op.values
    fresh = value.rank < op.result.rank
    return "flat.broadcast: TOSA takes no dynamic sizes here" if fresh and not value.tensor.is_static else None


def _reshape(e: TosaEmitter, op: Operation) -> Handle:
    return e.reshape(e.full(next(op.values)), op.attributes["shape"])


def _transpose(e: TosaEmitter, op: Operation) -> Handle:
    # The sizes that are 1 because they are repeated stay so.
    return e.transpose(e.thin(next(op.values)), op.attributes["permutation"])


def _slice(e: TosaEmitter, op: Operation) -> Handle:
    x, start, limit = e.full(next(op.values)), op.attributes["start"], op.attributes["limit"]
    sizes = [b - a for a, b in zip(start, limit, strict=True)]
    return e.tosa.slice(e.type(sizes, x.type.element_type), x, e.sizes(start), e.sizes(sizes))


def _takes_slice(op: Operation) -> str | None:
    strided = any(s != 1 for s in op.attributes["stride"])
    return "flat.slice: TOSA has no strides" if strided else None


def _concat(e: TosaEmitter, op: Operation) -> Handle:
    kind = e.type(op.result.shape, op.result.dtype)
    return e.tosa.concat([e.full(v) for v in op.values], op.attributes["dim"], results=[kind])


def _pad(e: TosaEmitter, op: Operation) -> Handle:
    tensor, number = op.values
    x, value = e.full(tensor), e.pad_constant(number)
    amounts = [n for pair in zip(op.attributes["low"], op.attributes["high"], strict=True) for n in pair]
    kind = e.type(op.result.shape, op.result.dtype)
    return e.tosa.pad(kind, x, e.sizes(amounts), value)


def _takes_pad(op: Operation) -> str | None:
    # A TOSA shape has at least one entry.
    return "flat.pad: TOSA pads no 0-d tensor" if op.result.rank == 0 else None


def _reverse(e: TosaEmitter, op: Operation) -> Handle:
    x = e.full(next(op.values))
    return e.tosa.reverse(x.type, x, op.attributes["dims"][0])


def _takes_reverse(op: Operation) -> str | None:
    return None if len(op.attributes["dims"]) == 1 else "flat.reverse: TOSA reverses one dim at a time"


def _constant(e: TosaEmitter, op: Operation) -> Handle:
    value, kind = op.attributes["value"], op.result
    if isinstance(value, tuple):
        return e.constant(value, kind.shape, kind.dtype)
    e.numbers[id(kind)] = value
    return e.constant(value, [1] * kind.rank, kind.dtype)


def _iota(e: TosaEmitter, op: Operation) -> Handle:
    values = np.arange(op.attributes["size"], dtype=_BITS[op.result.dtype.name])
    return e.constant(values, op.result.shape, op.result.dtype)


def _takes_iota(op: Operation) -> str | None:
    # The others are written out number by number.
    return None if op.result.dtype.name in _BITS else f"flat.iota: numpy has no {op.result.dtype.name}"


# Those tosa-validate passes, and those of the same bits.
_GATHERED = names(
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32"
)


def _gather(e: TosaEmitter, op: Operation) -> Handle:
    """Indices are 32 bits wide, 64 where the elements are, and must be in range."""
    x, places = op.values
    (height, width), (count,) = x.shape, places.shape
    at = e.full(places)
    at = e.map("maximum", e.map("minimum", at, e.like(at, height - 1)), e.like(at, 0))
    at = e.reshape(at if x.dtype.bits == 64 else e.cast(at, e.element(dt.int32)), [1, count])
    rows = e.tosa.gather(e.type([1, count, width], x.dtype), e.reshape(e.full(x), [1, height, width]), at)
    return e.reshape(rows, [count, width])


def _takes_gather(op: Operation) -> str | None:
    x = next(op.values)
    if not is_row_gather(op):
        return "flat.gather: TOSA gathers rows of a matrix only"
    height = x.shape[0]
    taken = x.dtype.name in _GATHERED and isinstance(height, int) and height < 2**31
    return None if taken else f"flat.gather: TOSA gathers no {x.tensor}"


ROWS = (
    TosaRule("broadcast", frozenset(), _broadcast, _takes_broadcast, dynamic=True),
    TosaRule("reshape", frozenset(), _reshape),
    TosaRule("transpose", frozenset(), _transpose, dynamic=True),
    TosaRule("slice", frozenset(), _slice, _takes_slice),
    TosaRule("concat", frozenset(), _concat, dynamic=True),
    TosaRule("pad", frozenset(), _pad, _takes_pad),
    TosaRule("reverse", frozenset(), _reverse, _takes_reverse),
    TosaRule("gather", frozenset(), _gather, _takes_gather),
    TosaRule("constant", frozenset(), _constant),
    TosaRule("iota", frozenset(), _iota, _takes_iota),
)
