"""Elementwise primitives on scalars: one row an op and kind of dtype.

A float row is written for the compute type (float32 for 16-bit floats, which are rounded once after it), but a row of
``BITWISE`` for the dtype itself. A complex row works on pairs of float64. Each rule gets a ``Scope`` and its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.linalg import complexes
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.libm import Library
from torchstone.compiler.lowering.linalg.polynomials import polynomial
from torchstone.compiler.lowering.linalg.scalars import Scalar


@dataclass(frozen=True, slots=True)
class Scope:
    """What a rule may need besides its operands: the operand dtype and the C library."""

    dtype: DType
    library: Library


ScalarRule = Callable[..., Scalar]


def _arith(name: str) -> ScalarRule:
    return lambda scope, *x: getattr(mlir.arith, name)(*x)


def _math(name: str) -> ScalarRule:
    return lambda scope, *x: getattr(mlir.math, name)(*x)


def _libm(name: str) -> ScalarRule:
    return lambda scope, *x: scope.library.call(name, *x)


def _const(like: Any, value: float | int) -> Any:
    return s.constant(like.type, value)


def _signed(signed: str, unsigned: str) -> ScalarRule:
    return lambda scope, *x: getattr(mlir.arith, signed if scope.dtype.is_signed else unsigned)(*x)


def _sign_float(scope: Scope, x: Any) -> Any:
    # Both comparisons are false for NaN, which gives the 0 that torch.sign has.
    positive, negative = (s.compare_float(r, x, _const(x, 0)) for r in ("gt", "lt"))
    return mlir.arith.select(positive, _const(x, 1), mlir.arith.select(negative, _const(x, -1), _const(x, 0)))


def _sign_int(scope: Scope, x: Any) -> Any:
    zero = _const(x, 0)
    if not scope.dtype.is_signed:
        return mlir.arith.select(s.compare_int("ne", x, zero), _const(x, 1), zero)
    negative = mlir.arith.select(s.compare_int("lt", x, zero), _const(x, -1), zero)
    return mlir.arith.select(s.compare_int("gt", x, zero), _const(x, 1), negative)


def _abs_int(scope: Scope, x: Any) -> Any:
    if not scope.dtype.is_signed:
        return x
    zero = _const(x, 0)
    return mlir.arith.select(s.compare_int("lt", x, zero), mlir.arith.subi(zero, x), x)


def _safe_divisor(scope: Scope, b: Any) -> tuple[Any, Any]:
    """Return a divisor that cannot trap (neither 0 nor -1), and whether b is -1 (None for unsigned)."""
    one = _const(b, 1)
    unsafe = s.compare_int("eq", b, _const(b, 0))
    if not scope.dtype.is_signed:
        return mlir.arith.select(unsafe, one, b), None
    # The minimum divided by -1 overflows, and x86 traps on it: negate instead.
    minus = s.compare_int("eq", b, _const(b, -1))
    return mlir.arith.select(mlir.arith.ori(unsafe, minus), one, b), minus


def _div_int(scope: Scope, a: Any, b: Any) -> Any:
    divisor, minus = _safe_divisor(scope, b)
    if minus is None:
        return mlir.arith.divui(a, divisor)
    return mlir.arith.select(minus, mlir.arith.subi(_const(a, 0), a), mlir.arith.divsi(a, divisor))


def _rem_int(scope: Scope, a: Any, b: Any) -> Any:
    divisor, minus = _safe_divisor(scope, b)
    return mlir.arith.remui(a, divisor) if minus is None else mlir.arith.remsi(a, divisor)


def _shift_left(scope: Scope, a: Any, b: Any) -> Any:
    width = _const(b, scope.dtype.bits)
    inside = s.compare_int("ult", b, width)
    amount = mlir.arith.select(inside, b, _const(b, 0))
    return mlir.arith.select(inside, mlir.arith.shli(a, amount), _const(a, 0))


def _shift_right(scope: Scope, a: Any, b: Any) -> Any:
    inside = s.compare_int("ult", b, _const(b, scope.dtype.bits))
    if scope.dtype.is_signed:
        return mlir.arith.shrsi(a, mlir.arith.select(inside, b, _const(b, scope.dtype.bits - 1)))
    amount = mlir.arith.select(inside, b, _const(b, 0))
    return mlir.arith.select(inside, mlir.arith.shrui(a, amount), _const(a, 0))


def _rsqrt(scope: Scope, x: Any) -> Any:
    return mlir.arith.divf(_const(x, 1), mlir.math.sqrt(x))


def _compare_float(relation: str) -> ScalarRule:
    return lambda scope, a, b: s.compare_float(relation, a, b)


def _compare_int(relation: str) -> ScalarRule:
    def rule(scope: Scope, a: Any, b: Any) -> Any:
        ordered = relation not in ("eq", "ne")
        return s.compare_int(f"u{relation}" if ordered and not scope.dtype.is_signed else relation, a, b)

    return rule


def _not(scope: Scope, x: Any) -> Any:
    return mlir.arith.xori(x, s.constant(x.type, -1))


def _copysign(scope: Scope, a: Scalar, b: Scalar) -> Scalar:
    """Join the bits of two numbers. A dtype has to have a sign bit and a zero of either sign: not every float8 has."""
    dtype, bits = scope.dtype, s.integer(scope.dtype.bits)
    sign = s.constant(bits, 1 << (dtype.bits - 1))
    a, b = (x if s.is_coded(dtype) else mlir.arith.bitcast(bits, x) for x in (a, b))
    size = mlir.arith.andi(a, mlir.arith.xori(sign, s.constant(bits, -1)))
    joined = mlir.arith.ori(size, mlir.arith.andi(b, sign))
    return joined if s.is_coded(dtype) else mlir.arith.bitcast(s.element(dtype), joined)


FLOAT: Mapping[str, ScalarRule] = {
    "neg": _arith("negf"), "abs": _math("absf"), "sign": _sign_float,
    "add": _arith("addf"), "sub": _arith("subf"), "mul": _arith("mulf"), "div": _arith("divf"), "rem": _arith("remf"),
    "fma": _math("fma"),
    "max": _arith("maximumf"), "min": _arith("minimumf"),
    "sqrt": _math("sqrt"), "rsqrt": _rsqrt,
    "ceil": _math("ceil"), "floor": _math("floor"), "round": _math("roundeven"), "trunc": _math("trunc"),
    **{name: polynomial(name, _math(name)) for name in ("exp", "exp2", "log", "log2")},
    **{name: polynomial(name, _libm(name)) for name in ("expm1", "log10", "log1p", "tanh", "erf", "erfc")},
    "sin": _math("sin"), "cos": _math("cos"), "pow": _math("powf"), "copysign": _copysign,
    **{name: _libm(name) for name in (
        "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "atan2",
    )},
    **{name: _compare_float(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip

INT: Mapping[str, ScalarRule] = {
    "neg": lambda scope, x: mlir.arith.subi(_const(x, 0), x), "abs": _abs_int, "sign": _sign_int, "not": _not,
    "add": _arith("addi"), "sub": _arith("subi"), "mul": _arith("muli"), "div": _div_int, "rem": _rem_int,
    "max": _signed("maxsi", "maxui"), "min": _signed("minsi", "minui"),
    "and": _arith("andi"), "or": _arith("ori"), "xor": _arith("xori"),
    "shift_left": _shift_left, "shift_right": _shift_right,
    **{name: _compare_int(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip

# What eager computes on float8: widened, and a product rounded once.
_FLOAT8_OPS = ("eq", "ne", "lt", "le", "gt", "ge", "mul")
FLOAT8: Mapping[str, ScalarRule] = {name: FLOAT[name] for name in _FLOAT8_OPS}

BOOL: Mapping[str, ScalarRule] = {
    "not": _not, "and": _arith("andi"), "or": _arith("ori"), "xor": _arith("xori"),
    "eq": _compare_int("eq"), "ne": _compare_int("ne"),
}  # fmt: skip

# Float rules that get the bits as they are: computed in float32, a 16-bit float is rounded, which drops a NaN's sign.
BITWISE = frozenset({"copysign"})

# Ops that look at their operands as they are, without arithmetic.
PLAIN = frozenset({"select", "cast", "bitcast", "complex", "real", "imag"})


@cache
def takes(name: str, dtype: DType) -> str | None:
    """Return None when ``name`` is lowered for operands of this dtype, else the reason why not."""
    if name in PLAIN:
        return None
    rules = _rules(dtype)
    return None if name in rules else f"flat.{name} on {dtype}: no rule for the linalg target"


@cache
def _rules(dtype: DType) -> Mapping[str, ScalarRule]:
    if s.is_float8(dtype):
        return FLOAT8
    if dtype.is_complex:
        return complexes.RULES
    return FLOAT if dtype.is_float else BOOL if dtype.is_bool else INT


def apply(name: str, operands: tuple[Scalar, ...], types: tuple[DType, ...], result: DType, library: Library) -> Scalar:
    """Build ``flat.<name>`` on scalars of these dtypes and return a scalar of dtype ``result``."""
    if name == "select":
        return _select(*operands)
    if name == "cast":
        return s.cast(types[0], result, operands[0])
    if name == "bitcast":
        return mlir.arith.bitcast(s.element(result), operands[0])
    if name in ("real", "imag"):
        return operands[0][name == "imag"]
    if name == "complex":
        return operands[0], operands[1]
    dtype = types[0]
    rule = _rules(dtype).get(name)
    if rule is None:
        raise Unsupported(takes(name, dtype) or name, op=f"flat.{name}", stage="lower")
    scope = Scope(dtype, library)
    if name in BITWISE or not (dtype.is_float or dtype.is_complex):
        return rule(scope, *operands)
    bits = 64 if dtype.is_complex else s.compute_bits(dtype)
    computed = rule(scope, *(s.widen(dtype, x, to=bits) for x in operands))
    return computed if result.is_bool else s.narrow(result, computed, from_=bits)


def _select(predicate: Any, a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, tuple):
        return tuple(mlir.arith.select(predicate, x, y) for x, y in zip(a, b, strict=True))
    return mlir.arith.select(predicate, a, b)
