"""Movement primitives in StableHLO. All are exact, of every dtype."""

from __future__ import annotations

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter
from torchstone.compiler.lowering.stablehlo.table import ANY, FLOAT, INT, Rule


def _broadcast(e: StablehloEmitter, op: Operation) -> Handle:
    (x,) = op.values
    if id(x) in e.numbers:
        e.numbers[id(op.result)] = e.numbers[id(x)]
        return e.full(e.numbers[id(x)], op.result.shape, x.dtype)
    return e.broadcast(e.values[id(x)], op.result.shape, op.attributes["dims"], x.dtype)


def _reshape(e: StablehloEmitter, op: Operation) -> Handle:
    (x,) = op.values
    if x.tensor.is_static and op.result.tensor.is_static:
        return e.reshape(e.values[id(x)], op.result.shape)
    return e.emit("dynamic_reshape", e.of(op.result), e.values[id(x)], e.sizes(op.result.shape))


def _transpose(e: StablehloEmitter, op: Operation) -> Handle:
    x = e.values[id(next(op.values))]
    return e.emit("transpose", e.of(op.result), x, permutation=e.integers(op.attributes["permutation"]))


def _slice(e: StablehloEmitter, op: Operation) -> Handle:
    x = e.values[id(next(op.values))]
    start, limit, stride = (op.attributes[name] for name in ("start", "limit", "stride"))
    kind = e.of(op.result)
    if all(isinstance(d, int) for d in (*start, *limit)):
        return e.emit(
            "slice", kind, x,
            start_indices=e.integers(start), limit_indices=e.integers(limit), strides=e.integers(stride),
        )  # fmt: skip
    return e.emit("real_dynamic_slice", kind, x, *(e.sizes(sizes) for sizes in (start, limit, stride)))


def _reverse(e: StablehloEmitter, op: Operation) -> Handle:
    x = e.values[id(next(op.values))]
    return e.emit("reverse", x.type, x, dimensions=e.integers(op.attributes["dims"]))


def _concat(e: StablehloEmitter, op: Operation) -> Handle:
    xs = [e.values[id(v)] for v in op.values]
    return e.emit("concatenate", e.of(op.result), *xs, dimension=e.integer(op.attributes["dim"]))


def _pad(e: StablehloEmitter, op: Operation) -> Handle:
    x, number = (e.values[id(v)] for v in op.values)
    low, high = op.attributes["low"], op.attributes["high"]
    return e.emit(
        "pad", e.of(op.result), x, number,
        edge_padding_low=e.integers(low), edge_padding_high=e.integers(high),
        interior_padding=e.integers([0] * len(low)),
    )  # fmt: skip


def _takes_pad(op: Operation) -> str | None:
    known = all(isinstance(n, int) for n in (*op.attributes["low"], *op.attributes["high"]))
    return None if known else "flat.pad: our StableHLO takes no amounts that are known at run time only"


def _constant(e: StablehloEmitter, op: Operation) -> Handle:
    value, kind = op.attributes["value"], op.result
    if isinstance(value, tuple):
        return e.constant(value, kind.shape, kind.dtype)
    e.numbers[id(kind)] = value
    return e.full(value, kind.shape, kind.dtype)


def _iota(e: StablehloEmitter, op: Operation) -> Handle:
    kind, size = op.result.dtype, op.attributes["size"]
    # Counted in int64 and rounded: 16-bit floats do not hold all numbers to count on.
    return e.convert(e.count(size), kind)


def _takes_iota(op: Operation) -> str | None:
    return None if op.result.dtype.name in INT | FLOAT else f"flat.iota: our StableHLO counts in no {op.result.dtype}"


ROWS = (
    Rule("broadcast", ANY, _broadcast),
    Rule("reshape", ANY, _reshape),
    Rule("transpose", ANY, _transpose),
    Rule("slice", ANY, _slice),
    Rule("reverse", ANY, _reverse),
    Rule("concat", ANY, _concat),
    Rule("pad", ANY, _pad, _takes_pad),
    Rule("constant", ANY, _constant),
    Rule("iota", ANY, _iota, _takes_iota),
)
