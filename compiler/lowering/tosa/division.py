"""Float division in TOSA, which has a reciprocal and no quotient.

``quotient`` is x * (1/y), the usual form. That is up to 1.5 ULP off (49 * (1/49) is not 1), and 1/y overflows or
loses bits where y is tiny or huge; our own runtime divides once instead, told by the attribute ``torchstone.quotient``.

``divide`` is correctly rounded wherever it runs, by one corrected multiplication, in forty ops: for quotients that are
rounded to integers or compared, where the last bit is a whole step. Both
operands are scaled by powers of two into the middle of the range, the residual x - q*y is computed exactly (Dekker,
"A floating-point technique for extending the available precision", 1971), and q is corrected by it (Markstein).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.tosa.corrections import QUOTIENT
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter

# Magnitudes end up in [2**-67, 2**46], quotients in [2**-113, 2**113]: splitting them does not overflow (2**13 more),
# and no part of a product is subnormal.
_LARGE, _SMALL, _SCALE = 2.0**36, 2.0**-46, 2.0**82


# What makes a step of the last bit of an operand.
_JUMPS = frozenset(
    f"flat.{name}" for name in ("floor", "ceil", "round", "trunc", "rem", "eq", "ne", "lt", "le", "gt", "ge")
)


def exact_quotients(ops: Sequence[Operation]) -> set[int]:
    """Return the ids of the values that are rounded to integers or compared."""
    users = [op for op in ops if op.name in _JUMPS or (op.name == "flat.cast" and not op.result.dtype.is_float)]
    return {id(v) for op in users for v in op.values}


def quotient(e: TosaEmitter, x: Value, y: Value) -> Handle:
    """Return x * (1/y) in float32: the reciprocal alone where x is 1, a constant factor where y is a constant."""
    by = e.numbers.get(id(y))
    if isinstance(by, float) and 2.0**-126 <= abs(by) <= 2.0**126:
        exact = math.frexp(by)[0] in (0.5, -0.5)
        out = e.multiply(e.thin(x), e.like(e.thin(y), 1.0 / by))
        return out if exact else _told(e, out, e.ir.FloatAttr.get(e.ir.F32Type.get(), by))
    inverse = e.map("reciprocal", e.thin(y))
    if e.numbers.get(id(x)) == 1:
        return inverse
    return _told(e, e.multiply(e.thin(x), inverse), e.ir.UnitAttr.get())


def _told(e: TosaEmitter, product: Handle, divisor: Any) -> Handle:
    product.owner.attributes[QUOTIENT] = divisor
    return product


def divide(e: TosaEmitter, x: Handle, y: Handle) -> Handle:
    """Return x / y in float32, rounded to nearest even; a subnormal quotient may be rounded twice."""
    add, sub, mul = (lambda a, b: e.map("add", a, b)), (lambda a, b: e.map("sub", a, b)), e.multiply
    one = e.like(x, 1.0)
    scale_x, unscale_x = _scales(e, x)
    scale_y, _ = _scales(e, y)
    a, b = mul(x, scale_x), mul(y, scale_y)
    r = e.map("reciprocal", b)
    q = mul(a, r)
    product, error = _product(e, q, b)
    correction = mul(sub(sub(a, product), error), r)
    # No correction of a zero (it would lose its sign), an infinity or a NaN (the correction is NaN).
    matters = e.compare("greater", e.map("abs", correction), e.like(x, 0.0))
    q = e.select(matters, add(q, correction), q)
    # Equal scales cancel and must not be applied one after the other: the first might overflow.
    same = e.compare("equal", scale_x, scale_y)
    return mul(mul(q, e.select(same, one, scale_y)), e.select(same, one, unscale_x))


def _scales(e: TosaEmitter, x: Handle) -> tuple[Handle, Handle]:
    """Return the power of two that brings |x| into the middle of the range, and its inverse."""
    magnitude = e.map("abs", x)
    large = e.compare("greater", magnitude, e.like(x, _LARGE))
    small = e.compare("greater", e.like(x, _SMALL), magnitude)

    def pick(if_large: float, if_small: float) -> Handle:
        return e.select(large, e.like(x, if_large), e.select(small, e.like(x, if_small), e.like(x, 1.0)))

    return pick(1 / _SCALE, _SCALE), pick(_SCALE, 1 / _SCALE)


def _product(e: TosaEmitter, x: Handle, y: Handle) -> tuple[Handle, Handle]:
    """Return fl(x*y) and the exact rest x*y - fl(x*y)."""
    mul = e.multiply
    product = mul(x, y)
    (xh, xl), (yh, yl) = _split(e, x), _split(e, y)
    error = e.map("sub", mul(xh, yh), product)
    for left, right in ((xh, yl), (xl, yh), (xl, yl)):
        error = e.map("add", error, mul(left, right))
    return product, error


def _split(e: TosaEmitter, x: Handle) -> tuple[Handle, Handle]:
    """Return x as the sum of two floats of at most 12 bits (Veltkamp)."""
    big = e.multiply(x, e.like(x, 4097.0))
    high = e.map("sub", big, e.map("sub", big, x))
    return high, e.map("sub", x, high)
