"""Elementwise primitives in StableHLO: a row an op, and the few whose StableHLO op means something else.

Semantics of the ops: StableHLO specification, "Ops". 16-bit floats are computed in float32 and rounded once, so that
functions of them are not taken: they are widened before.
"""

from __future__ import annotations

from collections.abc import Callable

from torchstone.compiler.ir import Operation
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter
from torchstone.compiler.lowering.stablehlo.table import ANY, BOOL, COMPLEX, FLOAT, INT, SIGNED, WIDE, Rule

Lower = Callable[[StablehloEmitter, Operation], Handle]


def _map(name: str) -> Lower:
    """The op of this name, of a result of the primitive's type."""
    return lambda e, op: e.emit(name, e.of(op.result), *(e.values[id(v)] for v in op.values))


def _compare(relation: str) -> Lower:
    return lambda e, op: e.compare(relation, *(e.values[id(v)] for v in op.values))


def _shift_right(e: StablehloEmitter, op: Operation) -> Handle:
    return _map("shift_right_arithmetic" if op.result.dtype.is_signed else "shift_right_logical")(e, op)


def _atan(e: StablehloEmitter, op: Operation) -> Handle:
    (x,) = op.values
    return e.map("atan2", e.values[id(x)], e.like(x, 1.0))


def _copysign(e: StablehloEmitter, op: Operation) -> Handle:
    """By the bits: a NaN has a sign too."""
    x, y = op.values
    bits = _UNSIGNED[x.dtype.bits]
    kind = e.type(x.shape, bits)
    size, sign = (e.full(n, x.shape, bits) for n in ((1 << (bits.bits - 1)) - 1, 1 << (bits.bits - 1)))
    a, b = (e.emit("bitcast_convert", kind, e.values[id(v)]) for v in (x, y))
    return e.emit("bitcast_convert", e.of(x), e.map("or", e.map("and", a, size), e.map("and", b, sign)))


_UNSIGNED = {16: dt.uint16, 32: dt.uint32, 64: dt.uint64}


def _cast(e: StablehloEmitter, op: Operation) -> Handle:
    (value,) = op.values
    x, target = e.values[id(value)], op.attributes["dtype"]
    if target.is_bool and not value.dtype.is_bool:
        return e.compare("NE", x, e.like(value, 0))  # of a complex number too, whose imaginary part counts
    if value.dtype.is_complex and not target.is_complex:
        x = e.emit("real", e.type(value.shape, value.dtype.real), x)
    return e.convert(x, target)


def _bitcast(e: StablehloEmitter, op: Operation) -> Handle:
    x = e.values[id(next(op.values))]
    return x if x.type == e.of(op.result) else e.emit("bitcast_convert", e.of(op.result), x)


def _select(e: StablehloEmitter, op: Operation) -> Handle:
    return e.select(*(e.values[id(v)] for v in op.values))


def _clamp(e: StablehloEmitter, op: Operation) -> Handle:
    """The bounds are 0-d; a NaN is propagated."""
    (x,) = op.values
    low, high = (e.constant(op.attributes[name], (), x.dtype) for name in ("low", "high"))
    return e.emit("clamp", e.of(x), low, e.values[id(x)], high)


def _takes_clamp(op: Operation) -> str | None:
    # maximum(-0, 0) is 0, and the primitive keeps the -0.
    zero = 0 in (op.attributes["low"], op.attributes["high"])
    return "flat.clamp: StableHLO's gives a zero the sign of a bound that is zero" if zero else None


def _rows(dtypes: frozenset[str], **ops: str) -> tuple[Rule, ...]:
    return tuple(Rule(name, dtypes, _map(op)) for name, op in ops.items())


ROWS = (
    *_rows(
        WIDE | COMPLEX, exp="exponential", expm1="exponential_minus_one", log="log", log1p="log_plus_one",
        sqrt="sqrt", rsqrt="rsqrt", sin="sine", cos="cosine", tan="tan", tanh="tanh", pow="power",
    ),
    *_rows(WIDE, sigmoid="logistic", atan2="atan2"),
    *_rows(FLOAT, ceil="ceil", floor="floor", round="round_nearest_even"),
    *_rows(SIGNED, sign="sign"),
    *_rows(SIGNED | FLOAT | COMPLEX, abs="abs"),
    *_rows(INT | FLOAT | COMPLEX, neg="negate", add="add", sub="subtract", mul="multiply", div="divide"),
    *_rows(INT | FLOAT, rem="remainder", max="maximum", min="minimum"),
    *_rows(BOOL | INT, **{"and": "and", "or": "or", "xor": "xor", "not": "not"}),
    *_rows(INT, shift_left="shift_left"),
    *_rows(COMPLEX, real="real", imag="imag"),
    *_rows(WIDE, complex="complex"),
    *(Rule(name, ANY, _compare(name.upper())) for name in ("eq", "ne")),
    *(Rule(name, INT | FLOAT, _compare(name.upper())) for name in ("lt", "le", "gt", "ge")),
    Rule("shift_right", INT, _shift_right),
    Rule("atan", WIDE, _atan),
    Rule("copysign", FLOAT, _copysign),
    Rule("cast", ANY, _cast),
    Rule("bitcast", INT | FLOAT, _bitcast),
    Rule("select", ANY, _select),
    Rule("clamp", FLOAT, _clamp, _takes_clamp),
)  # fmt: skip
