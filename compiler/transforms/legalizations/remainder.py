"""The exact remainder of float32 division, in integers.

``x - trunc(x / y) * y`` is no remainder once the quotient has more bits than a float. Both magnitudes are written as
``m * 2**e`` with m an integer, and ``(ma * 2**(ea - eb)) mod mb`` is computed in int64, a few bits of the power at a
time: the schoolbook way to reduce a product, exact for every quotient.
"""

from __future__ import annotations

from math import inf, nan

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.legalizations.common import Formula, needs
from torchstone.compiler.transforms.rules import Expander

# Integers m are below 2**26, so that m * 2**_STEP fits an int64; exponents of float32 differ by less than 36 * 8.
_STEP, _LEVELS = 36, 8


def float_remainder(b: Expander, x: Value, y: Value) -> Value:
    """C fmod. Exact; NaN for an infinite x, for y = 0 and for NaN; x where |x| < |y|; a zero has the sign of x."""
    needs(b, dt.float32)
    a, d = Formula(b, x), Formula(b, y)
    size, divisor = a.abs(), d.abs()
    invalid = (size == inf) | (divisor == 0.0) | a.is_nan() | d.is_nan()
    whole = (size < divisor) | invalid  # nothing to compute: some number that can be computed with stands in
    m, exponent = _integer(whole.where(1.0, size))
    n, scale = _integer(whole.where(1.0, divisor))
    shift = whole.where(0.0, exponent - scale).max(0.0)
    rounds = (shift * (1.0 / _STEP)).floor()
    modulus = _cast(_cast(n, dt.int32), dt.int64)
    rest = _cast(m * _power(shift - rounds * _STEP), dt.int64).rem(modulus)
    for level in range(_LEVELS):
        rest = (rounds > float(level)).where((rest * 2**_STEP).rem(modulus), rest)
    # The power of two may be below every float32 while the product is not.
    near = scale.max(-100.0)
    out = _cast(_cast(rest, dt.int32), dt.float32) * _power(near) * _power(scale - near)
    return invalid.where(nan, whole.where(a, out.with_sign_of(a))).value


def _integer(x: Formula) -> tuple[Formula, Formula]:
    """Return an integral m in [2**23, 2**26) and an e with x = m * 2**e, exactly, for a finite x above 0."""
    tiny = x < 2.0**-64
    scaled = tiny.where(x * 2.0**64, x)
    # The floor may be one too high next to a power of two; one less is low enough for m to be integral.
    e = (scaled.log() * 1.4426950408889634).floor() - 24.0
    return scaled * _power(-e), tiny.where(e - 64.0, e)


def _power(exponent: Formula) -> Formula:
    return Formula(exponent.b, exponent.of(2.0)).pow(exponent)


def _cast(x: Formula, dtype: DType) -> Formula:
    return Formula(x.b, x.b.cast(x.value, dtype))
