"""Elementwise primitives in TOSA: a row an op, and the few whose TOSA op means something else.

Semantics of the TOSA ops: TOSA 1.1 specification, "Elementwise operators". What differs from the primitive of the same
name is made up for here: division (TOSA has a reciprocal only), casts (TOSA rounds), shifts (amounts must be in range).
"""

from __future__ import annotations

from collections.abc import Callable

from torchstone.compiler.ir import DType, Operation
from torchstone.compiler.lowering.tosa.corrections import FUNCTION
from torchstone.compiler.lowering.tosa.division import divide, quotient
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter
from torchstone.compiler.lowering.tosa.table import TosaRule, names

F32 = names("float32")
FLOAT = names("float32", "float16", "bfloat16")
INT = names("int32", "int64")
# TOSA's integers have no sign: where it makes no difference to the bits of the result, the unsigned ones are taken too.
WRAPPING = names("int32", "int64", "uint32", "uint64")
BITS = names("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BOOL = names("bool")

Build = Callable[..., Handle]


def _map(tosa: str) -> Build:
    return lambda e, *xs: e.map(tosa, *xs)


def _compare(tosa: str) -> Build:
    return lambda e, *xs: e.compare(tosa, *xs)


def _is(x: Handle, width: int) -> bool:
    return str(x.type.element_type) == f"i{width}"


def _logic(name: str) -> Build:
    return lambda e, *xs: e.map(f"logical_{name}" if _is(xs[0], 1) else f"bitwise_{name}", *xs)


def _is_float(e: TosaEmitter, x: Handle) -> bool:
    return not isinstance(x.type.element_type, e.ir.IntegerType)


def _neg(e: TosaEmitter, x: Handle) -> Handle:
    if not _is_float(e, x):
        return e.map("sub", e.like(x, 0), x)
    zero = e.constant(0.0, [1], x.type.element_type)
    return e.tosa.negate(x.type, x, zero, zero)


def _div(e: TosaEmitter, op: Operation) -> Handle:
    x, y = (e.thin(v) for v in op.values)
    if _is_float(e, x):
        return divide(e, x, y) if id(op.result) in e.exact else quotient(e, *op.values)
    # The processor traps on a division by 0 and on minimum / -1: neither divisor reaches it.
    zero, one, minus = (e.like(y, v) for v in (0, 1, -1))
    is_minus = e.compare("equal", y, minus)
    safe = e.select(e.map("logical_or", e.compare("equal", y, zero), is_minus), one, y)
    return e.select(is_minus, e.map("sub", e.like(x, 0), x), e.map("intdiv", x, safe))


def _shift_left(e: TosaEmitter, x: Handle, y: Handle) -> Handle:
    zero, width = e.like(y, 0), e.like(y, x.type.element_type.width)
    inside = e.map("logical_and", e.compare("greater_equal", y, zero), e.compare("greater", width, y))
    return e.select(inside, e.map("logical_left_shift", x, e.select(inside, y, zero)), e.like(x, 0))


def _shift_right(e: TosaEmitter, x: Handle, y: Handle) -> Handle:
    zero, last = e.like(y, 0), e.like(y, x.type.element_type.width - 1)
    inside = e.map("logical_and", e.compare("greater_equal", y, zero), e.compare("greater_equal", last, y))
    amount = e.select(inside, y, last)
    return e.tosa.arithmetic_right_shift(e.joined(x, amount), x, amount, False)


def _function(name: str, formula: Build) -> Build:
    """A function that TOSA has not, by a formula that may cancel. Our runtime, told its name, calls the function."""

    def build(e: TosaEmitter, x: Handle) -> Handle:
        out = formula(e, x)
        out.owner.attributes[FUNCTION] = e.ir.StringAttr.get(name)
        return out

    return build


def _erfc(e: TosaEmitter, x: Handle) -> Handle:
    return e.map("sub", e.like(x, 1.0), e.map("erf", x))


def _expm1(e: TosaEmitter, x: Handle) -> Handle:
    return e.map("sub", e.map("exp", x), e.like(x, 1.0))


def _log1p(e: TosaEmitter, x: Handle) -> Handle:
    return e.map("log", e.map("add", x, e.like(x, 1.0)))


def _sqrt(e: TosaEmitter, x: Handle) -> Handle:
    """Right for zeros, infinities and negative numbers too, where x to the power of 1/2 is not."""
    return e.map("reciprocal", e.map("rsqrt", x))


FUNCTIONS: dict[str, Build] = {"erfc": _erfc, "expm1": _expm1, "log1p": _log1p, "sqrt": _sqrt}


def _row(name: str, dtypes: frozenset[str], build: Build) -> TosaRule:
    def lower(e: TosaEmitter, op: Operation) -> Handle:
        return build(e, *(e.thin(v) for v in op.values))

    return TosaRule(name, dtypes, lower, dynamic=True)


# Transcendental functions are taken in float32 alone: in 16 bits each target would round in its own way.
ROWS = (
    *(_row(n, F32, _map(n)) for n in ("exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "rsqrt", "pow")),
    *(_row(n, F32, _function(n, formula)) for n, formula in FUNCTIONS.items()),
    *(_row(n, FLOAT, _map(n)) for n in ("ceil", "floor")),
    _row("abs", FLOAT | INT, _map("abs")),
    _row("neg", FLOAT | WRAPPING, _neg),
    _row("add", FLOAT | WRAPPING, _map("add")),
    _row("sub", FLOAT | WRAPPING, _map("sub")),
    _row("mul", FLOAT | WRAPPING, lambda e, x, y: e.multiply(x, y)),
    TosaRule("div", F32 | INT, _div, dynamic=True),
    _row("max", FLOAT | INT, _map("maximum")),
    _row("min", FLOAT | INT, _map("minimum")),
    _row("and", BOOL | BITS, _logic("and")),
    _row("or", BOOL | BITS, _logic("or")),
    _row("xor", BOOL | BITS, _logic("xor")),
    _row("not", BOOL | BITS, _logic("not")),
    _row("shift_left", WRAPPING, _shift_left),
    _row("shift_right", INT, _shift_right),
    _row("eq", FLOAT | WRAPPING, _compare("equal")),
    _row("gt", FLOAT | INT, _compare("greater")),
    _row("ge", FLOAT | INT, _compare("greater_equal")),
)


def _select(e: TosaEmitter, op: Operation) -> Handle:
    return e.select(*(e.thin(v) for v in op.values))


# The casts tosa-validate passes and that mean what flat.cast means; every other pair is legalized through these.
_SMALL = ("int8", "int16", "int32")
CASTS: frozenset[tuple[str, str]] = frozenset(
    {(a, b) for a in _SMALL for b in _SMALL if a != b}
    | {("bool", b) for b in (*_SMALL, "int64")}
    | {("int32", "int64"), ("int64", "int32")}
    | {(a, b) for a in _SMALL for b in ("float32", "float16", "bfloat16")}
    | {(a, b) for a in ("float32", "float16", "bfloat16") for b in ("int32",)}
    | {(a, "float32") for a in ("float16", "bfloat16")}
    | {("float32", b) for b in ("float16", "bfloat16")}
)


def _same_bits(a: DType, b: DType) -> bool:
    """Say whether two integer dtypes differ in sign alone: MLIR's integers have none, so nothing is done."""
    return a.is_int and b.is_int and a.bits == b.bits


def takes_cast(op: Operation) -> str | None:
    source, target = op.operands[0].dtype, op.attributes["dtype"]  # type: ignore[union-attr]
    if source == target or _same_bits(source, target) or (source.name, target.name) in CASTS:
        return None
    return f"flat.cast: TOSA has no cast from {source} to {target}"


def _cast(e: TosaEmitter, op: Operation) -> Handle:
    (value,) = op.values
    x, target = e.thin(value), op.attributes["dtype"]
    if value.dtype == target or _same_bits(value.dtype, target):
        return x
    if value.dtype.is_float and target.is_int:
        # TOSA rounds to nearest: what it is given has no fraction left.
        zero = e.like(x, 0.0)
        x = e.select(e.compare("greater", zero, x), e.map("ceil", x), e.map("floor", x))
    return e.cast(x, e.element(target))


def _clamp(e: TosaEmitter, op: Operation) -> Handle:
    x = e.thin(next(op.values))
    low, high = (e.ir.FloatAttr.get(x.type.element_type, op.attributes[name]) for name in ("low", "high"))
    return e.tosa.clamp(x.type, x, low, high)  # a NaN is propagated, unless asked otherwise


STRUCTURED = (
    TosaRule("clamp", FLOAT, _clamp, dynamic=True),
    TosaRule("select", frozenset(), _select, dynamic=True),
    TosaRule("cast", frozenset(), _cast, dynamic=True, takes=takes_cast),
)
