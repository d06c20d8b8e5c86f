"""Wrong arithmetic: operands, dtypes, rounding, integers, complex numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.rules import Expander
from torchstone.conformance.mutants.mutant import Rule, arith, expansion, mutants, patched, primitives, scalar


def _swapped(right: Rule) -> Rule:
    return lambda b, x, y, *rest: right(b, y, x, *rest)


def _swapped_where_square(right: Rule) -> Rule:
    return lambda b, x, y: right(b, y, x) if x.type == y.type else right(b, x, y)


OPERANDS = mutants(
    "operand swap",
    ("sub-swapped", "b - a of floats", "sub", scalar("FLOAT", "sub", arith("subf", 1, 0))),
    ("int-sub-swapped", "b - a of integers", "sub", scalar("INT", "sub", arith("subi", 1, 0))),
    ("pow-swapped", "b ** a", "pow float_power", expansion("pow.Tensor_Tensor", _swapped)),
    ("atan2-swapped", "the angle of (a, b)", "atan2", expansion("atan2.default", _swapped)),
    ("bmm-swapped", "b @ a where both have one shape", "bmm matmul", expansion("bmm.default", _swapped_where_square)),
    (
        "addcdiv-swapped",
        "the divisor divided",
        "addcdiv",
        expansion("addcdiv.default", lambda right: lambda b, x, y, z, value=1: right(b, x, z, y, value)),
    ),
    ("lerp-swapped", "from the end to the start", "lerp", expansion("lerp.Tensor lerp.Scalar", _swapped)),
)


# Dtypes


def _divided_as_integers(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any) -> Value:
        if not (isinstance(x, Value) and isinstance(y, Value) and x.dtype == y.dtype and x.dtype.is_int):
            return right(b, x, y)
        x, y = (b.broadcast(v, b.type.dims) for v in (x, y))
        return b.cast(b.div(x, y), b.type.dtype)

    return rule


def _compared_as_the_first(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any) -> Value:
        if isinstance(y, Value):
            return right(b, x, b.cast(y, x.dtype))
        return right(b, x, int(y) if x.dtype.is_int and not isinstance(y, complex) else y)

    return rule


def _scalar_as_the_tensor(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any, *rest: Any) -> Value:
        whole = isinstance(x, Value) and x.dtype.is_int and isinstance(y, float)
        return right(b, x, int(y) if whole else y, *rest)

    return rule


def _as_narrow_as_given(b: Expander, x: Value, *, kind: str, dims: tuple[int, ...]) -> Value:
    """Reduce integers in their own dtype, where eager, and the rule, have widened them."""
    made = next((op for op in b.ops if op.results[:1] == (x,)), None)
    if made is None or made.name != "flat.cast" or not x.dtype.is_int:
        return b.reduce(x, kind, dims)
    (source,) = made.values
    return b.cast(b.reduce(source, kind, dims), x.dtype) if source.dtype.is_int else b.reduce(x, kind, dims)


def _exp_in_float32(b: Expander, x: Value) -> Value:
    return b.cast(b.exp(b.cast(x, dt.float32)), x.dtype)


def _divided_as_floats(b: Expander, x: Value, y: Value) -> Value:
    if not x.dtype.is_int:
        return b.div(x, y)
    return b.cast(b.trunc(b.div(b.cast(x, dt.float32), b.cast(y, dt.float32))), x.dtype)


def _scanned_as_int32(b: Expander, x: Value, **how: Any) -> Value:
    return b.cast(b.scan(b.cast(x, dt.int32), **how), x.dtype) if x.dtype == dt.int64 else b.scan(x, **how)


DTYPES = mutants(
    "wrong dtype",
    (
        "integers-divided-as-such",
        "true division of integers truncates",
        "true_divide div.no_rounding_mode",
        expansion("div.Tensor", _divided_as_integers),
    ),
    (
        "compared-in-the-first-dtype",
        "the second operand converted to the first's dtype",
        "lt ge eq",
        expansion("lt.Tensor lt.Scalar ge.Tensor ge.Scalar eq.Tensor eq.Scalar", _compared_as_the_first),
    ),
    (
        "scalar-in-the-tensors-dtype",
        "a float added to integers is truncated first",
        "add rsub",
        expansion("add.Tensor add.Scalar rsub.Scalar", _scalar_as_the_tensor),
    ),
    (
        "sum-in-own-dtype",
        "sums of int8 wrap",
        "sum",
        primitives("sum.default sum.dim_IntList", reduce=_as_narrow_as_given),
    ),
    (
        "prod-in-own-dtype",
        "products of int8 wrap",
        "prod",
        primitives("prod.default prod.dim_int", reduce=_as_narrow_as_given),
    ),
    ("exp-in-float32", "float64 computed in float32", "exp", primitives("exp.default", exp=_exp_in_float32)),
    (
        "floor-divide-in-float32",
        "integers divided as float32",
        "floor_divide",
        primitives("floor_divide.default", div=_divided_as_floats),
    ),
    ("cumsum-in-int32", "int64 accumulated in int32", "cumsum", primitives("cumsum.default", scan=_scanned_as_int32)),
)


# Rounding


def _truncated_quotient(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any) -> Value:
        from torchstone.compiler.transforms.expansions.common import arithmetic

        return arithmetic(b, lambda x, y: b.trunc(b.div(x, y)) if x.dtype.is_float else b.div(x, y), x, y)

    return rule


def _rounded_first(right: Rule) -> Rule:
    def convert(source: Any, target: Any, x: Any) -> Any:
        wide = mlir.math.roundeven(s.widen(source, x, to=s.compute_bits(source)))
        return right(dt.float64 if s.compute_bits(source) == 64 else dt.float32, target, wide)

    return convert


def _cut_off(right: Rule) -> Rule:
    def encode(dtype: Any, value: Any) -> Any:
        if dtype.name != "bfloat16":
            return right(dtype, value)
        bits = mlir.arith.bitcast(s.integer(32), value)
        return mlir.arith.trunci(s.integer(16), mlir.arith.shrui(bits, s.constant(s.integer(32), 16)))

    return encode


def _floor_plus_one(right: Rule) -> Rule:
    return lambda scope, x: mlir.arith.addf(mlir.math.floor(x), s.constant(x.type, 1))


ROUNDING = mutants(
    "wrong rounding",
    ("round-half-away", "halves rounded away from zero", "round", scalar("FLOAT", "round", arith("round", 0))),
    ("trunc-is-floor", "truncation rounds down", "trunc", scalar("FLOAT", "trunc", arith("floor", 0))),
    ("ceil-of-integral", "ceil(x) is floor(x) + 1", "ceil", scalar("FLOAT", "ceil", _floor_plus_one)),
    (
        "floor-divide-truncates",
        "quotients rounded toward zero",
        "floor_divide",
        expansion("floor_divide.default floor_divide.Scalar", _truncated_quotient),
    ),
    (
        "remainder-of-c",
        "the remainder has the dividend's sign",
        "remainder",
        expansion("remainder.Tensor remainder.Scalar", lambda right: _fmod),
    ),
    (
        "integers-rounded",
        "floats converted to integers are rounded",
        "int long short",
        patched("torchstone.compiler.lowering.linalg.scalars:_float_to_int", _rounded_first),
    ),
    (
        "bfloat16-cut-off",
        "the lower half of a float32 dropped",
        "add mul",
        patched("torchstone.compiler.lowering.linalg.scalars:_encode", _cut_off),
    ),
)


def _fmod(b: Expander, x: Any, y: Any) -> Value:
    from torchstone.compiler.transforms.expansions.core.elementwise import fmod

    return fmod(b, x, y)


# Integers


def _saturated(right: Rule) -> Rule:
    """x + y held within the dtype."""

    def rule(scope: Any, x: Any, y: Any) -> Any:
        if not scope.dtype.is_signed or scope.dtype.bits > 32:
            return right(scope, x, y)
        wide = mlir.arith.addi(*(mlir.arith.extsi(s.integer(64), v) for v in (x, y)))
        end = 1 << (scope.dtype.bits - 1)
        wide = mlir.arith.minsi(wide, s.constant(s.integer(64), end - 1))
        wide = mlir.arith.maxsi(wide, s.constant(s.integer(64), -end))
        return mlir.arith.trunci(s.integer(scope.dtype.bits), wide)

    return rule


def _no_lower_than_zero(right: Rule) -> Rule:
    def rule(scope: Any, x: Any, y: Any) -> Any:
        if scope.dtype.is_signed:
            return right(scope, x, y)
        below = s.compare_int("ult", x, y)
        return mlir.arith.select(below, s.constant(x.type, 0), mlir.arith.subi(x, y))

    return rule


def _abs_saturated(right: Rule) -> Rule:
    def rule(scope: Any, x: Any) -> Any:
        size = right(scope, x)
        if not scope.dtype.is_signed:
            return size
        largest = s.constant(x.type, (1 << (scope.dtype.bits - 1)) - 1)
        return mlir.arith.select(s.compare_int("lt", size, s.constant(x.type, 0)), largest, size)

    return rule


def _masked_shift(build: str, unsigned: str = "") -> Rule:
    def wrong(right: Rule) -> Rule:
        def rule(scope: Any, x: Any, y: Any) -> Any:
            amount = mlir.arith.andi(y, s.constant(y.type, scope.dtype.bits - 1))
            name = build if scope.dtype.is_signed or not unsigned else unsigned
            return getattr(mlir.arith, name)(x, amount)

        return rule

    return wrong


def _of_magnitude(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any) -> Value:
        if isinstance(y, Value):
            return right(b, x, b.abs(y) if y.dtype.is_int and y.dtype.is_signed else y)
        return right(b, x, abs(y) if isinstance(y, int) else y)

    return rule


def _rounded_down(right: Rule) -> Rule:
    def rule(b: Expander, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
        return right(b, x, y, "floor" if rounding_mode == "trunc" and b.type.dtype.is_int else rounding_mode)

    return rule


def _down_for_negative_dividends(b: Expander, x: Value, y: Value) -> Value:
    """In the rule for integers: whether the signs differ, taken from the dividend alone."""
    return b.lt(x, const(b, x, 0))


def _signed(dtype: DType) -> DType:
    return dt.BY_NAME[dtype.name.removeprefix("u")]


OVERFLOW = mutants(
    "overflow",
    ("add-saturates", "sums of integers stop at the largest", "add", scalar("INT", "add", _saturated)),
    ("sub-stops-at-zero", "differences of uint8 stop at 0", "sub", scalar("INT", "sub", _no_lower_than_zero)),
    ("abs-saturates", "abs of the minimum is the maximum", "abs", scalar("INT", "abs", _abs_saturated)),
    (
        "left-shift-masked",
        "shifts by the amount modulo the width",
        "bitwise_left_shift",
        scalar("INT", "shift_left", _masked_shift("shli")),
    ),
    (
        "right-shift-masked",
        "shifts by the amount modulo the width",
        "bitwise_right_shift",
        scalar("INT", "shift_right", _masked_shift("shrsi", "shrui")),
    ),
)

SIGNEDNESS = mutants(
    "signedness",
    ("unsigned-max-signed", "uint8 compared as int8", "maximum", scalar("INT", "max", arith("maxsi", 0, 1))),
    ("unsigned-less-signed", "uint8 compared as int8", "lt", scalar("INT", "lt", lambda right: _less)),
    (
        "unsigned-shift-signed",
        "the sign bit of uint8 drawn in",
        "bitwise_right_shift",
        scalar(
            "INT",
            "shift_right",
            lambda right: lambda scope, x, y: right(replace(scope, dtype=_signed(scope.dtype)), x, y),
        ),
    ),
    (
        "unsigned-to-float-signed",
        "uint8 becomes a negative float",
        "float true_divide",
        patched(
            "torchstone.compiler.lowering.linalg.scalars:_int_to_float",
            lambda right: lambda source, *to: right(_signed(source), *to),
        ),
    ),
)


def _less(scope: Any, x: Any, y: Any) -> Any:
    return s.compare_int("lt", x, y)


DIVISION = mutants(
    "negative divisors",
    (
        "floor-divide-by-negative",
        "rounds down where the dividend is negative",
        "floor_divide",
        patched(
            "torchstone.compiler.transforms.expansions.core.elementwise:_differ_in_sign",
            lambda right: _down_for_negative_dividends,
        ),
    ),
    (
        "remainder-by-negative",
        "integers divided by the magnitude",
        "remainder",
        expansion("remainder.Tensor remainder.Scalar", _of_magnitude),
    ),
    (
        "div-trunc-is-floor",
        "integer quotients rounded down",
        "div.trunc_rounding",
        expansion("div.Tensor_mode div.Scalar_mode", _rounded_down),
    ),
)


# Complex numbers


def _sum_of_parts(right: Rule) -> Rule:
    return lambda scope, x: mlir.arith.addf(*(mlir.math.absf(part) for part in x))


def _no_minus(right: Rule) -> Rule:
    def rule(scope: Any, x: Any, y: Any) -> Any:
        m = mlir.arith.mulf
        return mlir.arith.addf(m(x[0], y[0]), m(x[1], y[1])), right(scope, x, y)[1]

    return rule


COMPLEX = mutants(
    "complex",
    ("vdot-no-conjugate", "vdot is dot", "vdot", expansion("vdot.default", lambda right: _dot)),
    (
        "conj-lost",
        "conj is its operand",
        "conj_physical conj",
        expansion("_conj.default _conj_physical.default", lambda right: lambda b, x: x),
    ),
    ("complex-abs-of-parts", "|re| + |im|", "abs", scalar("COMPLEX", "abs", _sum_of_parts)),
    ("complex-mul-sign", "ac + bd for the real part", "mul", scalar("COMPLEX", "mul", _no_minus)),
    (
        "complex-angle-of-real",
        "the imaginary part not looked at",
        "angle",
        primitives("angle.default", atan2=lambda b, y, x: b.atan2(b.abs(y), x)),
    ),
)


def _dot(b: Expander, x: Value, y: Value) -> Value:
    return b.contract(x, y, a_batch=(), b_batch=(), a_sum=(0,), b_sum=(0,))


MUTANTS = (*OPERANDS, *DTYPES, *ROUNDING, *OVERFLOW, *SIGNEDNESS, *DIVISION, *COMPLEX)
