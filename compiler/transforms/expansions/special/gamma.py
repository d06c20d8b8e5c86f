"""The gamma function's logarithmic derivatives and the Hurwitz zeta function that gives those of higher orders.

Eager's formulas (aten/src/ATen/native/Math.h, derived from Cephes); of the zeta function, DLMF 25.11.
"""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, pointwise, unary_table
from torchstone.compiler.transforms.expansions.special import tables
from torchstone.compiler.transforms.expansions.special.functions import polynomial, where
from torchstone.compiler.transforms.rules import Expander, expands


def _digamma(b: Expander, x: Value) -> Value:
    """psi(x): the recurrence up to 10, the asymptotic series from there; by reflection below 0."""
    one, zero = const(b, x, 1), const(b, x, 0)
    negative = b.lt(x, zero)
    at, out = b.select(negative, b.sub(one, x), x), zero
    for _ in range(10):
        low = b.lt(at, const(b, x, 10))
        out = b.select(low, b.sub(out, b.div(one, at)), out)
        at = b.select(low, b.add(at, one), at)
    z = b.div(one, b.mul(at, at))
    series = where(b, at, "lt", 1e17, b.mul(z, polynomial(b, z, tables.DIGAMMA_A)), zero)
    asymptotic = b.sub(b.sub(b.add(out, b.log(at)), b.div(const(b, x, 0.5), at)), series)
    out = where(b, at, "eq", 10, b.add(out, const(b, x, 2.25175258906672110764)), asymptotic)
    # The fractional part's tangent, in float64, as pi * x itself would lose what the tangent magnifies.
    wide = b.cast(x, dt.float64)
    turn = b.sub(wide, b.trunc(wide))
    tangent = b.tan(b.mul(turn, const(b, wide, math.pi)))
    reflected = b.sub(out, b.cast(b.div(const(b, wide, math.pi), tangent), x.dtype))
    integral = b.eq(x, b.trunc(x))
    reflected = b.select(integral, const(b, x, math.nan), reflected)
    out = b.select(negative, reflected, out)
    return b.select(b.eq(x, zero), b.div(const(b, x, -1), x), out)  # an infinity, by the sign of the zero


def _trigamma(b: Expander, x: Value) -> Value:
    """psi'(x): six steps of the recurrence and the asymptotic series; by reflection below 1/2."""
    one = const(b, x, 1)
    low = b.lt(x, const(b, x, 0.5))
    sine = b.sin(b.mul(const(b, x, math.pi), x))
    reflection = b.neg(b.div(const(b, x, math.pi * math.pi), b.mul(sine, sine)))
    out, at = b.select(low, reflection, const(b, x, 0)), b.select(low, b.sub(one, x), x)
    for _ in range(6):
        out = b.add(out, b.div(one, b.mul(at, at)))
        at = b.add(at, one)
    z = b.div(one, b.mul(at, at))
    series = b.mul(z, polynomial(b, z, (1 / 42, -1 / 30, 1 / 6)))
    series = b.add(b.add(one, b.div(one, b.mul(const(b, x, 2), at))), series)
    out = b.add(out, b.div(series, at))
    return b.select(low, b.neg(out), out)


# Bernoulli's numbers B2, B4, …
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
    -236364091 / 2730,
)  # fmt: skip
_EPSILON = 2.0**-53
# The largest x whose factors x (x + 1) ... (x + 22) have a product in float64.
_FACTORS_END = 25256835601045.996


def _zeta_above(b: Expander, x: Value, q: Value) -> Value:
    """zeta(x, q) where x > 1 and q > 0: ten terms, the rest by Euler and Maclaurin's formula where it matters."""
    power, one = b.neg(x), const(b, x, 1)
    at, term = q, b.pow(q, power)
    total = term
    for _ in range(9):
        at = b.add(at, one)
        term = b.pow(at, power)
        total = b.add(total, term)
    inverse = b.div(one, at)
    square = b.mul(inverse, inverse)
    rest = const(b, x, 0)
    for i in reversed(range(len(_BERNOULLI))):
        rest = b.add(rest, const(b, x, _BERNOULLI[i] / math.factorial(2 * i + 2)))
        if i:
            rising = b.mul(b.add(x, const(b, x, 2 * i - 1)), b.add(x, const(b, x, 2 * i)))
            rest = b.mul(rest, b.mul(rising, square))
    rest = b.mul(rest, b.mul(x, inverse))
    rest = b.add(b.sub(rest, const(b, x, 0.5)), b.div(at, b.sub(x, one)))
    negligible = b.lt(term, b.mul(const(b, x, _EPSILON), total))
    out = b.select(negligible, total, b.add(total, b.mul(term, rest)))
    # Where all terms are 0, eager goes on until it multiplies them by the factors, even infinite ones.
    undefined = b.and_(b.eq(total, const(b, x, 0)), b.gt(x, const(b, x, _FACTORS_END)))
    return b.select(undefined, const(b, x, math.nan), out)


def _zeta(b: Expander, x: Value, q: Value) -> Value:
    """sum((q + k)**-x, k = 0, 1, …): infinite at x = 1 and at q = 0, -1, …; NaN for x < 1, or q < 0 and x no integer.

    Below 0 the terms before the sign changes are those of two other sums: none of them is longer than ten terms.
    """
    negative = b.lt(q, const(b, q, 0))
    above, below = b.sub(q, b.floor(q)), b.sub(b.ceil(q), q)
    out = _zeta_above(b, x, b.select(negative, above, q))
    half = b.mul(x, const(b, x, 0.5))
    even = b.eq(b.floor(half), half)
    near, far = (
        b.select(even, b.neg(tail), tail)
        for tail in (b.neg(_zeta_above(b, x, below)), _zeta_above(b, x, b.sub(const(b, q, 1), q)))
    )
    # Of an odd x the large sums come first: half way between two integers they cancel, and the small one is left.
    mirrored = b.add(b.add(out, near), far)
    # From so large an x on, one of the terms is infinite: that of a q + k between -1 and 1.
    mirrored = where(b, x, "gt", 2.0**44, const(b, x, math.inf), mirrored)
    out = b.select(negative, mirrored, out)
    infinite, undefined = const(b, x, math.inf), const(b, x, math.nan)
    out = b.select(b.and_(negative, b.ne(x, b.floor(x))), undefined, out)
    pole = b.and_(b.le(q, const(b, q, 0)), b.eq(q, b.floor(q)))
    out = b.select(pole, infinite, out)
    return where(b, x, "eq", 1, infinite, where(b, x, "lt", 1, undefined, out))


def _zeta_as_eager(b: Expander, x: Value, q: Value) -> Value:
    """Eager sums in float64 whatever the dtype."""
    return b.cast(_zeta(b, b.cast(x, dt.float64), b.cast(q, dt.float64)), x.dtype)


@expands("aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar")
def zeta(b: Expander, x: Value | float, q: Value | float) -> Value:
    return pointwise(b, lambda x, q: _zeta_as_eager(b, x, q), x, q)


@expands("aten.polygamma.default")
def polygamma(b: Expander, *arguments: Value | int) -> Value:
    """The n-th derivative of digamma, from the second on (-1)**(n + 1) n! zeta(n + 1, x)."""
    n, x = arguments if isinstance(arguments[0], int) else arguments[::-1]
    assert isinstance(n, int)
    if n < 2:
        return pointwise(b, lambda v: (_trigamma if n else _digamma)(b, v), x)
    factor = float(math.factorial(n)) if n <= 170 else math.inf
    factor = factor if n % 2 else -factor

    def formula(v: Value) -> Value:
        # In float64 up to the product: the factor of a large n is infinite in float32, and zeta is 0 there.
        wide = b.cast(v, dt.float64)
        return b.cast(b.mul(const(b, wide, factor), _zeta(b, const(b, wide, n + 1), wide)), v.dtype)

    return pointwise(b, formula, x)


unary_table((("digamma", _digamma),))
