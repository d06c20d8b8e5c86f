"""Exact arithmetic: signs, rounding to integral values, integer remainder, maxima."""

from __future__ import annotations

from torchstone.compiler.diagnostics import NOT_TAKEN
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.legalizations.common import Formula, formula, legalization
from torchstone.compiler.transforms.legalizations.remainder import float_remainder
from torchstone.compiler.transforms.rules import Declined, Expander

FLOATS = (dt.float32, dt.float64)
# From here on every float of the dtype is integral; below it, adding and subtracting this rounds to an integer.
_INTEGRAL = {"float32": 2.0**23, "float64": 2.0**52}


@legalization("neg")
def neg(b: Expander, x: Value) -> Value:
    """0 - x for integers; for floats x * -1, which keeps the sign of zero."""
    if x.dtype.is_float:
        return b.mul(x, b.full_like(x, -1.0))
    if not x.dtype.is_int:
        raise Declined
    return b.sub(b.full_like(x, 0), x)


@legalization("sub")
def sub(b: Expander, x: Value, y: Value) -> Value:
    """x + -y."""
    return b.add(x, b.neg(y))


@legalization("fma")
def fma(b: Expander, x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded twice."""
    return b.add(b.mul(x, y), z)


@legalization("abs")
def abs_(b: Expander, x: Value) -> Value:
    """max(x, -x) for integers, whose minimum stays; for floats by comparison, with |-0| = 0 through 0 - x."""
    if x.dtype.is_complex:
        raise Declined
    negative = b.lt(x, b.full_like(x, 0))
    if x.dtype.is_int:
        return b.select(negative, b.neg(x), x)
    zero = b.full_like(x, 0.0)
    return b.select(b.le(x, zero), b.sub(zero, x), x)


@legalization("sign")
def sign(b: Expander, x: Value) -> Value:
    """1 above 0, -1 below, 0 at ±0 and for NaN."""
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    if x.dtype.is_int and not x.dtype.is_signed:
        return b.select(b.gt(x, zero), one, zero)
    return b.select(b.gt(x, zero), one, b.select(b.lt(x, zero), b.full_like(x, -1), zero))


@formula("trunc", ulps=0.0, dtypes=FLOATS)
def trunc(x: Formula) -> Formula:
    """ceil below 0, else floor: exact, and -0 stays."""
    return (x < 0.0).where(x.ceil(), x.floor())


@formula("round", ulps=0.0, dtypes=FLOATS)
def round_(x: Formula) -> Formula:
    """(|x| + c) - c with c = 2**23 (2**52): the addition rounds half to even in the unit of c, which is 1; exact."""
    unit = _INTEGRAL[x.value.dtype.name]
    a = x.abs()
    # -0.3 rounds to -0 as +0.3 does to 0; ±0, NaN and what is integral already stay themselves.
    rounded = ((a + unit) - unit).with_sign_of(x)
    return (a < unit).where(rounded, x)


@formula("ceil", ulps=0.0, dtypes=FLOATS)
def ceil(x: Formula) -> Formula:
    """-floor(-x)."""
    return -((-x).floor())


@legalization("rem")
def rem(b: Expander, x: Value, y: Value) -> Value:
    """Of integers: x - (x / y) * y, which wraps to the exact remainder; of floats see ``remainder``."""
    if not x.dtype.is_int:
        return float_remainder(b, x, y)
    return b.sub(x, b.mul(b.div(x, y), y))


def _extremum(b: Expander, x: Value, y: Value, better: Value) -> Value:
    """The better one, but x when it is NaN; the comparison is false when y is NaN, so y is chosen."""
    chosen = b.select(better, x, y)
    return b.select(b.ne(x, x), x, chosen) if x.dtype.is_float else chosen


@legalization("max")
def max_(b: Expander, x: Value, y: Value) -> Value:
    return _extremum(b, x, y, b.gt(x, y))


@legalization("min")
def min_(b: Expander, x: Value, y: Value) -> Value:
    return _extremum(b, x, y, b.lt(x, y))


@legalization("not")
def not_(b: Expander, x: Value) -> Value:
    """Of signed integers: -x - 1."""
    if not (x.dtype.is_int and x.dtype.is_signed):
        raise Declined
    return b.sub(b.full_like(x, -1), x)


@legalization("copysign")
def copysign(b: Expander, x: Value, y: Value) -> Value:
    """Two zeros are told apart by 1 / y. Two NaNs are by nothing, and one of a chosen sign cannot be made: declined."""
    told = b.and_(b.eq(x, x), b.eq(y, y))
    held = b.reduce(told, "and", tuple(range(told.rank)))
    b.emit("check", held, message=f"{NOT_TAKEN}{b.op.location.notes[0] if b.op.location.notes else b.op.name} of NaN")
    size, sign = Formula(b, x).abs(), Formula(b, y)
    negative = (sign == 0.0).where(Formula(b, b.full_like(y, 1.0)) / sign, sign) < 0.0
    return negative.where(-size, size).value
