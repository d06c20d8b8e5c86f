"""Comparisons, predicates, logical and bitwise ops, and what chooses between values: where, clamp, maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import compare, const, is_nan, pointwise, stepwise, tensor
from torchstone.compiler.transforms.promotion import result_type
from torchstone.compiler.transforms.rules import Expander, expands


def _comparison(relation: str):
    return lambda b, x, y: compare(b, relation, x, y)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        expands.row(f"aten.{_name}.{_overload}", _comparison(_name))


# Predicates of one tensor. Only floats and complex numbers are ever NaN, infinite or -0.


def _part(b: Expander, x: Value, test: Callable[[Value], Value]) -> Value:
    """``test`` a float, or both parts of a complex number; of other dtypes nothing can be but finite."""
    if x.dtype.is_float:
        return test(x)
    if x.dtype.is_complex:
        return b.or_(test(b.real(x)), test(b.imag(x)))
    return b.full(False, x.shape, dt.boolean)


@expands("aten.isnan.default")
def isnan(b: Expander, x: Value) -> Value:
    return _part(b, x, lambda v: is_nan(b, v))


@expands("aten.isinf.default")
def isinf(b: Expander, x: Value) -> Value:
    return _part(b, x, lambda v: b.eq(b.abs(v), const(b, v, math.inf)))


@expands("aten.isposinf.default")
def isposinf(b: Expander, x: Value) -> Value:
    return _part(b, x, lambda v: b.eq(v, const(b, v, math.inf)))


@expands("aten.isneginf.default")
def isneginf(b: Expander, x: Value) -> Value:
    return _part(b, x, lambda v: b.eq(v, const(b, v, -math.inf)))


@expands("aten.signbit.default")
def signbit(b: Expander, x: Value) -> Value:
    if not x.dtype.is_signed:
        return b.full(False, x.shape, dt.boolean)
    return b.lt(b.copysign(const(b, x, 1), x) if x.dtype.is_float else x, const(b, x, 0))


@expands("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(b: Expander, x: Value, y: Any) -> Value:
    """|x| with the sign bit of y. Not in float32, as 16-bit floats are computed otherwise: a cast may drop it."""
    return stepwise(b, lambda x, y: b.copysign(x, y), x, y)


# Logic: a number is true when it is not 0.


@expands("aten.logical_not.default")
def logical_not(b: Expander, x: Value) -> Value:
    return b.not_(b.cast(x, dt.boolean))


def _logical(primitive: str):
    def rule(b: Expander, x: Any, y: Any) -> Value:
        if b.op.name.startswith("aten.logical_"):  # 256 is true, but false beside a uint8: promoted first
            common = result_type(x, y)
            x, y = tensor(b, x, common), tensor(b, y, common)
        return pointwise(b, lambda x, y: getattr(b, primitive)(x, y), x, y)

    return rule


for _name in ("and", "or", "xor"):
    expands.row(f"aten.logical_{_name}.default", _logical(_name))
    for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        expands.row(f"aten.bitwise_{_name}.{_overload}", _logical(_name))


@expands("aten.bitwise_not.default")
def bitwise_not(b: Expander, x: Value) -> Value:
    return b.not_(x)


@expands(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar", "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.__lshift__.Tensor", "aten.__lshift__.Scalar",
)  # fmt: skip
def left_shift(b: Expander, x: Any, y: Any) -> Value:
    return pointwise(b, lambda x, y: b.shift_left(x, y), x, y)


@expands(
    "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor", "aten.__rshift__.Tensor", "aten.__rshift__.Scalar",
)  # fmt: skip
def right_shift(b: Expander, x: Any, y: Any) -> Value:
    return pointwise(b, lambda x, y: b.shift_right(x, y), x, y)


# Choosing.


@expands("aten.where.self")
def where(b: Expander, condition: Value, x: Any, y: Any) -> Value:
    chosen = b.broadcast(b.cast(condition, dt.boolean), b.type.dims)
    return stepwise(b, lambda x, y: b.select(chosen, x, y), x, y)


@expands("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: Expander, x: Value, mask: Value, value: Any) -> Value:
    return where(b, mask, value, x)


@expands("aten.heaviside.default")
def heaviside(b: Expander, x: Value, values: Value) -> Value:
    """0 below 0, 1 above, ``values`` at 0; NaN counts as above nothing: 0."""

    def formula(x: Value, values: Value) -> Value:
        above = b.gt(x, const(b, x, 0))
        return b.select(b.eq(x, const(b, x, 0)), values, b.select(above, const(b, x, 1), const(b, x, 0)))

    if b.type.dtype.is_bool:
        return b.or_(*(b.broadcast(v, b.type.dims) for v in (x, values)))
    return stepwise(b, formula, x, values)


def larger(b: Expander, x: Value, y: Value) -> Value:
    return b.or_(x, y) if x.dtype.is_bool else b.max(x, y)


def smaller(b: Expander, x: Value, y: Value) -> Value:
    return b.and_(x, y) if x.dtype.is_bool else b.min(x, y)


@expands("aten.maximum.default")
def maximum(b: Expander, x: Value, y: Value) -> Value:
    return stepwise(b, lambda x, y: larger(b, x, y), x, y)


@expands("aten.minimum.default")
def minimum(b: Expander, x: Value, y: Value) -> Value:
    return stepwise(b, lambda x, y: smaller(b, x, y), x, y)


def _ignoring_nan(b: Expander, choose: Any, x: Value, y: Value) -> Value:
    def formula(x: Value, y: Value) -> Value:
        out = choose(b, x, y)
        return b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, out)) if x.dtype.is_float else out

    return stepwise(b, formula, x, y)


@expands("aten.fmax.default")
def fmax(b: Expander, x: Value, y: Value) -> Value:
    return _ignoring_nan(b, larger, x, y)


@expands("aten.fmin.default")
def fmin(b: Expander, x: Value, y: Value) -> Value:
    return _ignoring_nan(b, smaller, x, y)


@expands("aten.clamp.default", "aten.clamp.Tensor")
def clamp(b: Expander, x: Value, low: Any = None, high: Any = None) -> Value:
    """min(max(x, low), high); NaN anywhere gives NaN; ``high`` wins over a larger ``low``.

    Between numbers a zero keeps its sign, whichever zero the bound is.
    """
    bounds = [v for v in (low, high) if v is not None]
    numbers = all(isinstance(v, int | float) and not math.isnan(v) for v in bounds)

    if numbers and b.type.dtype.is_float:
        least, most = -math.inf if low is None else float(low), math.inf if high is None else float(high)
        return stepwise(b, lambda x: b.clamp(x, low=min(least, most), high=most), x)

    def formula(x: Value, *bounds: Value) -> Value:
        rest = list(bounds)
        if low is not None:
            x = larger(b, x, rest.pop(0))
        return smaller(b, x, rest.pop(0)) if rest else x

    return stepwise(b, formula, x, *bounds)


@expands("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(b: Expander, x: Value, low: Any) -> Value:
    return clamp(b, x, low)


@expands("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(b: Expander, x: Value, high: Any) -> Value:
    return clamp(b, x, None, high)


@expands("aten.nan_to_num.default")
def nan_to_num(
    b: Expander, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Replace NaN by 0 and infinities by the largest finite numbers, unless told otherwise."""
    if x.dtype.is_complex:
        real, imag = (_finite(b, part, nan, posinf, neginf) for part in (b.real(x), b.imag(x)))
        return b.complex(real, imag)
    return _finite(b, x, nan, posinf, neginf) if x.dtype.is_float else x


LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


def _finite(b: Expander, x: Value, nan: float | None, posinf: float | None, neginf: float | None) -> Value:
    largest = LARGEST[x.dtype.name]
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    out = b.select(b.eq(x, const(b, x, math.inf)), const(b, x, high), x)
    out = b.select(b.eq(x, const(b, x, -math.inf)), const(b, x, low), out)
    return b.select(is_nan(b, x), tensor_like(b, x, nan or 0.0), out)


@expands("aten.angle.default")
def angle(b: Expander, x: Value) -> Value:
    """Of a complex number, atan2(imag, real); of a real one, pi below 0, else 0; NaN stays."""

    def formula(x: Value) -> Value:
        if x.dtype.is_complex:
            return b.atan2(b.imag(x), b.real(x))
        out = b.select(b.lt(x, const(b, x, 0)), const(b, x, math.pi), const(b, x, 0))
        return b.select(is_nan(b, x), x, out)

    return pointwise(b, formula, x, dtype=x.dtype if x.dtype.is_complex else None)


@expands("aten.polar.default")
def polar(b: Expander, size: Value, angle: Value) -> Value:
    """size * (cos(angle) + i sin(angle))."""
    real = b.type.dtype.real
    return pointwise(
        b, lambda r, phi: b.complex(b.mul(r, b.cos(phi)), b.mul(r, b.sin(phi))), size, angle, dtype=real
    )  # fmt: skip


def tensor_like(b: Expander, x: Value, value: Any) -> Value:
    return b.broadcast(tensor(b, value, x.dtype), x.shape)
