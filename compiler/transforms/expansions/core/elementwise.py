"""Elementwise arithmetic and functions. The formula of each op is in PyTorch's documentation of torch.<op>.

The order of operations is eager's (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp, UnaryOpsKernel.cpp, PowKernel.cpp,
PointwiseOpsKernel.cpp): where rounding or overflow can show, the formula is written the way the kernel has it.
"""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import (
    arithmetic,
    const,
    exact,
    pointwise,
    unary_table,
    zero_check,
)
from torchstone.compiler.transforms.promotion import opmath, result_type
from torchstone.compiler.transforms.rules import Expander, expands

# ATen ops that are one primitive of the same meaning; integer tensors become float32 first, as the result type says.
FLOAT_UNARY = (
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
)  # fmt: skip
# Rounding: integers are integral already.
ROUNDING = ("ceil", "floor", "round", "trunc")


def _primitive(name: str):
    return lambda b, x: getattr(b, name)(x)


def _rounding(name: str):
    def rule(b: Expander, x: Value) -> Value:
        return pointwise(b, lambda v: getattr(b, name)(v), x) if x.dtype.is_float else x

    return rule


unary_table((name, _primitive(name)) for name in FLOAT_UNARY)
for _name in ROUNDING:
    expands.row(f"aten.{_name}.default", _rounding(_name))


# Primitives that take no complex numbers, and what they are for those.
REAL_UNARY = {
    "exp2": lambda b, x: b.exp(_by_real(b, b.mul, x, math.log(2))),
    "log2": lambda b, x: _by_real(b, b.div, b.log(x), math.log(2)),
    "log10": lambda b, x: _by_real(b, b.div, b.log(x), math.log(10)),
}


def _by_real(b: Expander, op: Any, x: Value, number: Any) -> Value:
    """A complex number multiplied or divided by a real one, part by part: 0 * inf must not come in."""
    real, imag = b.real(x), b.imag(x)
    number = number if isinstance(number, Value) else const(b, real, number)
    return b.complex(op(real, number), op(imag, number))


def _real_unary(name: str):
    return lambda b, x: REAL_UNARY[name](b, x) if x.dtype.is_complex else getattr(b, name)(x)


unary_table((name, _real_unary(name)) for name in REAL_UNARY)


@expands("aten.neg.default")
def neg(b: Expander, x: Value) -> Value:
    return pointwise(b, lambda x: b.neg(x), x)


@expands("aten.abs.default")
def abs_(b: Expander, x: Value) -> Value:
    """|x|; of a complex number a real one; of a bool, itself."""
    return x if x.dtype.is_bool or not x.dtype.is_signed else pointwise(b, lambda x: b.abs(x), x, dtype=x.dtype)


@expands("aten.sign.default")
def sign(b: Expander, x: Value) -> Value:
    return x if x.dtype.is_bool else pointwise(b, lambda x: b.sign(x), x)


@expands("aten.sgn.default")
def sgn(b: Expander, x: Value) -> Value:
    """sign(x); of a complex number x / |x|, 0 at 0."""
    if not x.dtype.is_complex:
        return sign(b, x)

    def formula(x: Value) -> Value:
        size = b.abs(x)
        unit = _by_real(b, b.div, x, size)
        return b.select(b.eq(size, const(b, size, 0)), const(b, x, 0), unit)

    return pointwise(b, formula, x)


@expands("aten.reciprocal.default")
def reciprocal(b: Expander, x: Value) -> Value:
    return pointwise(b, lambda x: b.div(const(b, x, 1), x), x)


@expands("aten.frac.default")
def frac(b: Expander, x: Value) -> Value:
    """x - trunc(x)."""
    return pointwise(b, lambda x: b.sub(x, b.trunc(x)), x)


@expands("aten.deg2rad.default")
def deg2rad(b: Expander, x: Value) -> Value:
    return pointwise(b, lambda x: b.mul(x, const(b, x, math.pi / 180)), x)


@expands("aten.rad2deg.default")
def rad2deg(b: Expander, x: Value) -> Value:
    return pointwise(b, lambda x: b.mul(x, const(b, x, 180 / math.pi)), x)


@expands("aten.sinc.default")
def sinc(b: Expander, x: Value) -> Value:
    """sin(pi x) / (pi x), 1 at 0."""

    def formula(x: Value) -> Value:
        product = b.mul(x, const(b, x, math.pi))
        return b.select(b.eq(x, const(b, x, 0)), const(b, x, 1), b.div(b.sin(product), product))

    return pointwise(b, formula, x)


@expands("aten.round.decimals")
def round_decimals(b: Expander, x: Value, decimals: int) -> Value:
    """round(x * 10**decimals) / 10**decimals."""
    if not x.dtype.is_float:
        return x
    if not decimals:
        return pointwise(b, lambda x: b.round(x), x)

    def formula(x: Value) -> Value:
        ten = const(b, x, 10.0 ** abs(decimals))
        return b.div(b.round(b.mul(x, ten)), ten) if decimals > 0 else b.mul(b.round(b.div(x, ten)), ten)

    return pointwise(b, formula, x)


# Sums and products.


def _factor(b: Expander, y: Value, alpha: Any) -> Value:
    if not isinstance(alpha, Value):
        return const(b, y, alpha)
    if alpha.dtype.is_float and not (y.dtype.is_float or y.dtype.is_complex):
        raise b.unsupported("a float known at run time only times integers")
    return b.broadcast(b.cast(alpha, y.dtype), y.shape, ())


def _negative_factor(b: Expander, y: Value, alpha: Any) -> Value:
    """As eager has it, which takes the opposite of a Python number first: that of an integer 0 is no -0."""
    return _factor(b, y, -alpha) if isinstance(alpha, int | float | complex) else b.neg(_factor(b, y, alpha))


def _is_one(alpha: Any) -> bool:
    return not isinstance(alpha, Value) and alpha == 1


def _scaled(b: Expander, y: Value, alpha: Any) -> Value:
    return y if _is_one(alpha) else b.mul(_factor(b, y, alpha), y)


def _multiply_add(b: Expander, x: Value, y: Value, z: Value) -> Value:
    """x * y + z. Of floats fused, as in eager's kernels: a product that alone overflows may have a finite sum."""
    return b.fma(x, y, z) if x.dtype.is_float else b.add(b.mul(x, y), z)


@expands("aten.add.Tensor", "aten.add.Scalar")
def add(b: Expander, x: Any, y: Any, alpha: Any = 1) -> Value:
    """x + alpha * y; of bools, x or (alpha and y)."""
    if b.type.dtype.is_bool and isinstance(alpha, Value):
        raise b.unsupported("a factor known at run time only")
    if b.type.dtype.is_bool:
        return pointwise(b, lambda x, y: b.or_(x, y) if alpha else x, x, y)
    if _is_one(alpha):
        return arithmetic(b, lambda x, y: b.add(x, y), x, y)
    return arithmetic(b, lambda x, y: _multiply_add(b, y, _factor(b, y, alpha), x), x, y)


@expands("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: Expander, x: Any, y: Any, alpha: Any = 1) -> Value:
    """x - alpha * y."""
    if _is_one(alpha):
        return arithmetic(b, lambda x, y: b.sub(x, y), x, y)
    return arithmetic(b, lambda x, y: _multiply_add(b, y, _negative_factor(b, y, alpha), x), x, y)


@expands("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(b: Expander, x: Any, y: Any, alpha: Any = 1) -> Value:
    """y - alpha * x."""
    return sub(b, y, x, alpha)


@expands("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: Expander, x: Any, y: Any) -> Value:
    """x * y; of bools, x and y."""
    return arithmetic(b, lambda x, y: b.and_(x, y) if x.dtype.is_bool else b.mul(x, y), x, y)


@expands("aten.addcmul.default")
def addcmul(b: Expander, x: Value, y: Value, z: Value, value: Any = 1) -> Value:
    """x + value * y * z."""
    return pointwise(b, lambda x, y, z: b.add(x, b.mul(_scaled(b, y, value), z)), x, y, z)


@expands("aten.addcdiv.default")
def addcdiv(b: Expander, x: Value, y: Value, z: Value, value: Any = 1) -> Value:
    """x + value * y / z."""
    return pointwise(b, lambda x, y, z: b.add(x, b.div(_scaled(b, y, value), z)), x, y, z)


@expands("aten.lerp.Tensor", "aten.lerp.Scalar")
def lerp(b: Expander, start: Value, end: Value, weight: Any) -> Value:
    """start + weight * (end - start), from the nearer end so that weight 1 gives end exactly."""

    def formula(start: Value, end: Value, weight: Value) -> Value:
        span = b.sub(end, start)
        size = b.abs(weight)
        near = b.lt(size, const(b, size, 0.5))
        factor = b.select(near, weight, b.sub(weight, const(b, weight, 1)))
        return _multiply_add(b, factor, span, b.select(near, start, end))

    return pointwise(b, formula, start, end, weight)


# Division. Eager raises RuntimeError("ZeroDivisionError") when an integer is divided by 0.


@expands("aten.div.Tensor", "aten.div.Scalar")
def div(b: Expander, x: Any, y: Any) -> Value:
    return arithmetic(b, lambda x, y: b.div(x, y), x, y)


@expands("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(b: Expander, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(b, x, y)
    if rounding_mode == "floor":
        return floor_divide(b, x, y)
    if b.type.dtype.is_float:
        return arithmetic(b, lambda x, y: b.trunc(b.div(x, y)), x, y)

    def formula(x: Value, y: Value) -> Value:
        zero_check(b, y)
        return b.div(x, y)

    return pointwise(b, formula, x, y)


def _differ_in_sign(b: Expander, x: Value, y: Value) -> Value:
    return b.ne(b.lt(x, const(b, x, 0)), b.lt(y, const(b, y, 0)))


def _floor_divide_ints(b: Expander, x: Value, y: Value) -> Value:
    zero_check(b, y)
    quotient = b.div(x, y)
    if not x.dtype.is_signed:
        return quotient
    inexact = b.ne(b.rem(x, y), const(b, x, 0))
    down = b.and_(inexact, _differ_in_sign(b, x, y))
    return b.select(down, b.sub(quotient, const(b, x, 1)), quotient)


def _floor_divide_floats(b: Expander, x: Value, y: Value) -> Value:
    """c10::div_floor_floating: Python's floor division, x / y where y is 0."""
    zero, one = const(b, x, 0), const(b, x, 1)
    remainder = b.rem(x, y)
    quotient = b.div(b.sub(x, remainder), y)
    fix = b.and_(b.ne(remainder, zero), _differ_in_sign(b, y, remainder))
    quotient = b.select(fix, b.sub(quotient, one), quotient)
    floor = b.floor(quotient)
    floor = b.select(b.gt(b.sub(quotient, floor), const(b, x, 0.5)), b.add(floor, one), floor)
    ratio = b.div(x, y)
    # A quotient of 0 has the sign of the exact one: 0 * ratio, as |ratio| < 1 there.
    floor = b.select(b.eq(quotient, zero), b.mul(zero, ratio), floor)
    return b.select(b.eq(y, zero), ratio, floor)


@expands("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(b: Expander, x: Any, y: Any) -> Value:
    def formula(x: Value, y: Value) -> Value:
        return _floor_divide_floats(b, x, y) if x.dtype.is_float else _floor_divide_ints(b, x, y)

    return arithmetic(b, formula, x, y)


@expands("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(b: Expander, x: Any, y: Any) -> Value:
    """x - floor(x / y) * y, exactly: C's fmod, moved by y where the signs differ."""

    def formula(x: Value, y: Value) -> Value:
        if x.dtype.is_int:
            zero_check(b, y)
        rest = b.rem(x, y)
        if not x.dtype.is_signed:
            return rest
        fix = b.and_(b.ne(rest, const(b, rest, 0)), _differ_in_sign(b, y, rest))
        return b.select(fix, b.add(rest, y), rest)

    return exact(b, formula, x, y)


@expands("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(b: Expander, x: Any, y: Any) -> Value:
    """C's fmod: the sign of x."""

    def formula(x: Value, y: Value) -> Value:
        if x.dtype.is_int:
            zero_check(b, y)
        return b.rem(x, y)

    return exact(b, formula, x, y)


# Functions of two numbers.


@expands("aten.atan2.default")
def atan2(b: Expander, x: Value, y: Value) -> Value:
    return pointwise(b, lambda x, y: b.atan2(x, y), x, y)


@expands("aten.hypot.default")
def hypot(b: Expander, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) without overflow on the way: large * sqrt(1 + (small / large)**2)."""

    def formula(x: Value, y: Value) -> Value:
        x, y = b.abs(x), b.abs(y)
        large, small = b.max(x, y), b.min(x, y)
        zero, one, infinity = const(b, x, 0), const(b, x, 1), const(b, x, math.inf)
        ratio = b.div(small, b.select(b.eq(large, zero), one, large))
        out = b.mul(large, b.sqrt(b.add(one, b.mul(ratio, ratio))))
        # Infinite with an infinite side, whatever the other is.
        return b.select(b.or_(b.eq(x, infinity), b.eq(y, infinity)), infinity, out)

    return pointwise(b, formula, x, y)


@expands("aten.gcd.default")
def gcd(b: Expander, x: Value, y: Value) -> Value:
    """The greatest common divisor by Euclid's steps: consecutive Fibonacci numbers of the width take the most.

    The lowest number of a signed dtype has no absolute value, and stays negative.
    """

    def formula(x: Value, y: Value) -> Value:
        if x.dtype.is_signed:
            x, y = b.abs(x), b.abs(y)
        zero = const(b, x, 0)
        small, large = 1, 2
        while small < 2 ** (x.dtype.bits - x.dtype.is_signed) + 1:
            done = b.eq(x, zero)
            x, y = b.select(done, x, b.rem(y, x)), b.select(done, y, x)
            small, large = large, small + large
        return y

    return pointwise(b, formula, x, y)


@expands("aten.logaddexp.default")
def logaddexp(b: Expander, x: Value, y: Value) -> Value:
    return _log_add(b, x, y, lambda v: b.log1p(b.exp(v)))


@expands("aten.logaddexp2.default")
def logaddexp2(b: Expander, x: Value, y: Value) -> Value:
    inverse_log_2 = 1 / math.log(2)
    return _log_add(b, x, y, lambda v: b.mul(b.log1p(b.exp2(v)), const(b, v, inverse_log_2)))


def _log_add(b: Expander, x: Value, y: Value, log1p_exp: Any) -> Value:
    """max(x, y) + log1p_exp(-|x - y|); equal infinities are their own sum."""

    def formula(x: Value, y: Value) -> Value:
        if x.dtype.is_complex:
            return complex_log_add(b, x, y)
        out = b.add(b.max(x, y), log1p_exp(b.neg(b.abs(b.sub(x, y)))))
        same_infinity = b.and_(b.eq(x, y), b.eq(b.abs(x), const(b, x, math.inf)))
        return b.select(same_infinity, x, out)

    return pointwise(b, formula, x, y)


def complex_log_add(b: Expander, x: Value, y: Value) -> Value:
    """log(e**x + e**y) by the number of the larger real part; NaN in any part is NaN in both."""
    below = b.lt(b.real(x), b.real(y))
    low, high = b.select(below, x, y), b.select(below, y, x)
    infinity, nan = const(b, b.real(x), math.inf), const(b, b.real(x), math.nan)
    out = b.add(b.log1p(b.exp(b.sub(low, high))), high)
    level = b.eq(b.real(low), b.real(high))
    out = b.select(b.and_(level, b.eq(b.real(low), b.neg(infinity))), low, out)
    out = b.select(b.and_(level, b.eq(b.real(low), infinity)), b.log(b.add(b.exp(low), b.exp(high))), out)
    return b.select(b.or_(b.ne(x, x), b.ne(y, y)), b.complex(nan, nan), out)


def _times_log(b: Expander, x: Any, y: Any, log: Any) -> Value:
    """x * log(y): 0 where x is 0, but NaN wherever y is."""

    def formula(x: Value, y: Value) -> Value:
        out = b.select(b.eq(x, const(b, x, 0)), const(b, x, 0), b.mul(x, log(y)))
        return b.select(b.ne(y, y), y, out)

    return pointwise(b, formula, x, y)


@expands("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(b: Expander, x: Any, y: Any) -> Value:
    return _times_log(b, x, y, b.log)


@expands(
    "aten.special_xlog1py.default", "aten.special_xlog1py.self_scalar", "aten.special_xlog1py.other_scalar"
)  # fmt: skip
def xlog1py(b: Expander, x: Any, y: Any) -> Value:
    return _times_log(b, x, y, b.log1p)


@expands("aten.special_entr.default")
def entr(b: Expander, x: Value) -> Value:
    """-x log(x): 0 at 0, -inf below."""

    def formula(x: Value) -> Value:
        zero = const(b, x, 0)
        out = b.select(b.eq(x, zero), zero, b.mul(b.neg(x), b.log(x)))
        return b.select(b.lt(x, zero), const(b, x, -math.inf), out)

    return pointwise(b, formula, x)


@expands("aten.sigmoid.default")
def sigmoid(b: Expander, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    return pointwise(b, lambda x: logistic(b, x), x)


def logistic(b: Expander, x: Value) -> Value:
    if x.dtype.is_float:
        return b.sigmoid(x)
    one = const(b, x, 1)
    return b.div(one, b.add(one, b.exp(b.neg(x))))


@expands("aten.logit.default")
def logit(b: Expander, x: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)), x clamped to [eps, 1 - eps]; NaN stays."""

    def formula(x: Value) -> Value:
        one = const(b, x, 1)
        if eps is not None and eps >= 0:
            low, high = const(b, x, eps), b.sub(one, const(b, x, eps))
            x = b.select(b.lt(x, low), low, b.select(b.gt(x, high), high, x))
        return b.log(b.div(x, b.sub(one, x)))

    return pointwise(b, formula, x)


@expands("aten.ldexp.Tensor")
def ldexp(b: Expander, x: Value, exponent: Value) -> Value:
    """x * 2**exponent; exactly for a float and an integer, even where the power itself would overflow."""
    if not x.dtype.is_float or exponent.dtype.is_float or exponent.dtype.is_complex:
        # A 0-d exponent of another dtype than the result's is a number to eager, which computes with it as wide as its
        # kernel does: for all but float32, which raises 2 to it in its own dtype.
        wide = b.type.dtype
        scalar = exponent.rank == 0 and (exponent.dtype.is_float or exponent.dtype.is_complex)
        scalar = scalar and x.dtype != dt.float32 and wide != exponent.dtype
        power = b.cast(exponent, opmath(wide) if scalar else result_type(2.0, exponent))
        power = b.pow(const(b, power, 2), power)
        if scalar:
            return b.cast(b.mul(b.cast(x, power.dtype), b.broadcast(power, x.shape, ())), wide)
        return pointwise(b, lambda x, p: b.mul(x, p), x, power)
    least, most = (-1022, 1023) if b.type.dtype == dt.float64 else (-126, 127)

    def formula(x: Value) -> Value:
        # In three steps of a power that the dtype holds, the largest last: only the last one rounds.
        left = b.broadcast(_within(b, exponent, 3 * least, 3 * most), x.shape)
        steps: list[Value] = []
        for _ in range(3):
            steps.append(_within(b, left, least, most))
            left = b.sub(left, steps[-1])
        for step in reversed(steps):
            x = b.mul(x, b.pow(const(b, x, 2), b.cast(step, x.dtype)))
        return x

    return pointwise(b, formula, x)


def _within(b: Expander, x: Value, low: int, high: int) -> Value:
    """An integer clamped, as int32."""
    x = b.cast(x, dt.int32) if x.dtype.bits < 32 else x
    return b.cast(b.min(b.max(x, const(b, x, low)), const(b, x, high)), dt.int32)
