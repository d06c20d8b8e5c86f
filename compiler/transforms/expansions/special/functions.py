"""Special functions by the approximations eager uses: aten/src/ATen/native/Math.h, derived from Cephes.

Each piece is computed everywhere and chosen by its domain afterwards, so that only the chosen one has to be defined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, is_nan, unary_table
from torchstone.compiler.transforms.expansions.special import tables
from torchstone.compiler.transforms.rules import Expander


def polynomial(b: Expander, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, highest order first."""
    out = const(b, x, coefficients[0])
    for c in coefficients[1:]:
        out = b.add(b.mul(out, x), const(b, x, c))
    return out


def _chebyshev(b: Expander, x: Value, coefficients: Sequence[float]) -> Value:
    """The Chebyshev series at x / 2 by Clenshaw's recurrence, highest order first.

    Below float64 the leading terms that its precision cannot hold are left out, as eager's own tables for float do.
    """
    if x.dtype != dt.float64:
        least = 1e-10 * max(map(abs, coefficients))
        coefficients = coefficients[next(i for i, c in enumerate(coefficients) if abs(c) >= least) :]
    previous, last, out = const(b, x, 0), const(b, x, 0), const(b, x, coefficients[0])
    for c in coefficients[1:]:
        previous, last = last, out
        out = b.add(b.sub(b.mul(x, last), previous), const(b, x, c))
    return b.mul(const(b, x, 0.5), b.sub(out, previous))


def _ratio(b: Expander, x: Value, above: Sequence[float], below: Sequence[float]) -> Value:
    return b.div(polynomial(b, x, above), polynomial(b, x, below))


def where(b: Expander, x: Value, relation: str, limit: float, then: Value, otherwise: Value) -> Value:
    return b.select(getattr(b, relation)(x, const(b, x, limit)), then, otherwise)


# Modified Bessel functions.


def _first_kind(b: Expander, x: Value, order: int, *, scaled: bool) -> Value:
    """I_order(x), times e**-|x| when scaled: one Chebyshev series to 8, another beyond."""
    near_table, far_table = ((tables.I0_A, tables.I0_B), (tables.I1_A, tables.I1_B))[order]
    size = b.abs(x)
    near = _chebyshev(b, b.sub(b.div(size, const(b, x, 2)), const(b, x, 2)), near_table)
    near = b.mul(near, size) if order else where(b, near, "gt", 1, const(b, x, 1), near)  # rounding: e**-|x| I_0 <= 1
    far = _chebyshev(b, b.sub(b.div(const(b, x, 32), size), const(b, x, 2)), far_table)
    growth = b.exp(size)
    if not scaled:
        near, far = b.mul(growth, near), b.mul(growth, far)
    out = where(b, size, "le", 8, near, b.div(far, b.sqrt(size)))
    return where(b, x, "lt", 0, b.neg(out), out) if order else out


def _second_kind(b: Expander, x: Value, order: int, *, scaled: bool) -> Value:
    """K_order(x), times e**x when scaled; infinite at 0, NaN below."""
    near_table, far_table = ((tables.K0_A, tables.K0_B), (tables.K1_A, tables.K1_B))[order]
    near = _chebyshev(b, b.sub(b.mul(x, x), const(b, x, 2)), near_table)
    product = b.mul(b.log(b.mul(const(b, x, 0.5), x)), _first_kind(b, x, order, scaled=False))
    near = b.add(product, b.div(near, x)) if order else b.sub(near, product)
    far = _chebyshev(b, b.sub(b.div(const(b, x, 8), x), const(b, x, 2)), far_table)
    if scaled:
        near = b.mul(near, b.exp(x))
    else:
        far = b.mul(b.exp(b.neg(x)), far)
    out = where(b, x, "le", 2, near, b.div(far, b.sqrt(x)))
    out = where(b, x, "lt", 0, const(b, x, math.nan), out)
    return where(b, x, "eq", 0, const(b, x, math.inf), out)


# Bessel functions.

_TWO_OVER_PI = 0.636619772367581343075535053490057448
_PHASE = (0.785398163397448309615660845819875721, 2.356194490192344928846982537459627163)


def _asymptotic(b: Expander, x: Value, order: int, *, second: bool) -> Value:
    """J or Y beyond 5: sqrt(2 / (pi x)) times cosine and sine of x minus a phase, with rational amplitudes."""
    pp, pq, qp, qq = (
        (tables.J0_PP, tables.J0_PQ, tables.J0_QP, tables.J0_QQ),
        (tables.J1_PP, tables.J1_PQ, tables.J1_QP, tables.J1_QQ),
    )[order]
    five_over_x = b.div(const(b, x, 5), x)
    z = b.mul(five_over_x, five_over_x) if order else b.div(const(b, x, 25), b.mul(x, x))
    angle = b.sub(x, const(b, x, _PHASE[order]))
    cosine, sine = b.cos(angle), b.sin(angle)
    first, other = _ratio(b, z, pp, pq), b.mul(five_over_x, _ratio(b, z, qp, qq))
    if second:
        wave = b.add(b.mul(first, sine), b.mul(other, cosine))
    else:
        wave = b.sub(b.mul(first, cosine), b.mul(other, sine))
    return b.div(b.mul(wave, const(b, x, math.sqrt(_TWO_OVER_PI))), b.sqrt(x))


def _bessel_j(b: Expander, x: Value, order: int) -> Value:
    size = b.abs(x)
    square = b.mul(size, size)

    def root(value: float) -> Value:
        return b.sub(square, const(b, x, value))

    if order == 0:
        near = b.mul(root(5.78318596294678452118), root(3.04712623436620863991e01))
        near = b.div(b.mul(near, polynomial(b, square, tables.J0_RP)), polynomial(b, square, tables.J0_RQ))
        tiny = b.sub(const(b, x, 1), b.div(square, const(b, x, 4)))
        near = where(b, size, "lt", 0.00001, tiny, near)
        return where(b, size, "le", 5, near, _asymptotic(b, size, 0, second=False))
    near = b.mul(_ratio(b, square, tables.J1_RP, tables.J1_RQ), x)
    near = b.mul(b.mul(near, root(1.46819706421238932572e01)), root(4.92184563216946036703e01))
    far = _asymptotic(b, size, 1, second=False)
    return where(b, size, "le", 5, near, where(b, x, "lt", 0, b.neg(far), far))


def _bessel_y(b: Expander, x: Value, order: int) -> Value:
    square = b.mul(x, x)
    two_over_pi = const(b, x, _TWO_OVER_PI)
    if order == 0:
        near = b.add(
            _ratio(b, square, tables.Y0_YP, tables.Y0_YQ), b.mul(b.mul(two_over_pi, b.log(x)), _bessel_j(b, x, 0))
        )
    else:
        product = b.sub(b.mul(_bessel_j(b, x, 1), b.log(x)), b.div(const(b, x, 1), x))
        near = b.add(b.mul(x, _ratio(b, square, tables.Y1_YP, tables.Y1_YQ)), b.mul(two_over_pi, product))
    near = where(b, x, "lt", 0, const(b, x, math.nan), near)
    near = where(b, x, "eq", 0, const(b, x, -math.inf), near)
    return where(b, x, "le", 5, near, _asymptotic(b, x, order, second=True))


def _spherical_j0(b: Expander, x: Value) -> Value:
    """sin(x) / x, by its series near 0."""
    series = [1 / math.factorial(2 * k + 1) * (-1) ** k for k in reversed(range(7))]
    near = polynomial(b, b.mul(x, x), series)
    out = where(b, b.abs(x), "lt", 0.5, near, b.div(b.sin(x), x))
    return where(b, b.abs(x), "eq", math.inf, const(b, x, 0), out)


def _airy(b: Expander, x: Value) -> Value:
    """Ai(x): its power series within 2.09 of 0, asymptotic formulas outside."""
    one, quarter_turn = const(b, x, 1), const(b, x, math.pi / 4)
    root_pi = const(b, x, 5.64189583547756286948e-01)
    size = b.abs(x)
    root = b.sqrt(size)
    zeta = b.div(b.mul(b.mul(const(b, x, 2), size), root), const(b, x, 3))
    inverse = b.div(one, zeta)
    z = b.mul(inverse, inverse)
    angle = b.add(zeta, quarter_turn)
    even = b.add(one, b.mul(z, _ratio(b, z, tables.AIRY_AFN, tables.AIRY_AFD)))
    odd = b.mul(inverse, _ratio(b, z, tables.AIRY_AGN, tables.AIRY_AGD))
    wave = b.sub(b.mul(b.sin(angle), even), b.mul(b.cos(angle), odd))
    below = b.mul(b.div(root_pi, b.sqrt(root)), wave)
    decay = b.mul(b.mul(const(b, x, 2), b.sqrt(root)), b.exp(zeta))
    above = b.div(b.mul(root_pi, _ratio(b, inverse, tables.AIRY_AN, tables.AIRY_AD)), decay)
    out = where(b, x, "lt", -2.09, below, where(b, x, "ge", 2.09, above, _airy_series(b, x)))
    out = where(b, x, "gt", 103.892, const(b, x, 0), out)
    return where(b, size, "eq", math.inf, const(b, x, math.nan), out)


def _airy_series(b: Expander, x: Value) -> Value:
    cube = b.mul(b.mul(x, x), x)
    f, g, m, n = const(b, x, 1), x, const(b, x, 1), x
    for k in range(1, 40, 3):
        m = b.div(b.div(b.mul(m, cube), const(b, x, k + 1)), const(b, x, k + 2))
        n = b.div(b.div(b.mul(n, cube), const(b, x, k + 2)), const(b, x, k + 3))
        f, g = b.add(f, m), b.add(g, n)
    return b.sub(b.mul(const(b, x, 0.355028053887817239260), f), b.mul(const(b, x, 0.258819403792806798405), g))


# The error function's relatives.


def _erfcx(b: Expander, x: Value) -> Value:
    """e**(x**2) erfc(x), in float64; from 20 on, where erfc vanishes, its asymptotic series (DLMF 7.12.1)."""
    wide = b.cast(x, dt.float64)
    one, square = const(b, wide, 1), b.mul(wide, wide)
    growth = b.exp(square)
    if x.dtype == dt.float64:  # what the square lost in rounding, by Dekker's product, matters in the exponent
        scaled = b.mul(wide, const(b, wide, 2**27 + 1))
        high = b.sub(scaled, b.sub(scaled, wide))
        low = b.sub(wide, high)
        error = b.sub(b.mul(high, high), square)
        error = b.add(b.add(error, b.mul(b.add(high, high), low)), b.mul(low, low))
        growth = b.select(b.lt(square, const(b, wide, 700)), b.mul(growth, b.add(one, error)), growth)
    near = b.mul(growth, b.erfc(wide))
    inverse = b.div(const(b, wide, 0.5), square)
    series = (135135.0, -10395.0, 945.0, -105.0, 15.0, -3.0, 1.0)
    tail = b.sub(one, b.mul(inverse, polynomial(b, inverse, series)))
    far = b.div(tail, b.mul(wide, const(b, wide, math.sqrt(math.pi))))
    return b.cast(where(b, wide, "lt", 20, near, far), x.dtype)


def _erfinv(b: Expander, y: Value) -> Value:
    """A rational approximation and two of Halley's steps. Beside 1 these go by erfc: erf has no digits left there."""
    one, size = const(b, y, 1), b.abs(y)
    rest = b.sub(one, size)
    z = b.mul(y, y)
    above = polynomial(b, z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    below = polynomial(b, z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    central = b.div(b.mul(y, above), below)
    z = b.sqrt(b.neg(b.log(b.div(rest, const(b, y, 2)))))
    above = polynomial(b, z, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    below = polynomial(b, z, (1.637067800, 3.543889200, 1.0))
    tail = b.div(b.abs(above), below)
    for _ in range(2):
        central = _nearer_root_of_erf(b, central, b.sub(b.erf(central), y))
        tail = _nearer_root_of_erf(b, tail, b.sub(rest, b.erfc(tail)))
    tail = where(b, size, "eq", 1, const(b, y, math.inf), tail)
    x = where(b, size, "le", 0.7, central, where(b, y, "lt", 0, b.neg(tail), tail))
    return b.select(b.or_(b.gt(size, one), is_nan(b, y)), const(b, y, math.nan), x)


def _nearer_root_of_erf(b: Expander, x: Value, beyond: Value) -> Value:
    """One of Halley's steps from x, where erf is larger by ``beyond`` than it has to be."""
    slope = b.mul(const(b, x, 2 / math.sqrt(math.pi)), b.exp(b.mul(b.neg(x), x)))
    step = b.div(beyond, slope)
    return b.sub(x, b.div(step, b.add(const(b, x, 1), b.mul(x, step))))


def _ndtri(b: Expander, y0: Value) -> Value:
    """The point below which a normal variable lies with probability y."""
    one, tail = const(b, y0, 1), 0.13533528323661269189
    upper = b.gt(y0, const(b, y0, 1 - tail))
    y = b.select(upper, b.sub(one, y0), y0)
    centered = b.sub(y, const(b, y, 0.5))
    square = b.mul(centered, centered)
    central = b.add(centered, b.mul(centered, b.mul(square, _ratio(b, square, tables.NDTRI_P0, tables.NDTRI_Q0))))
    central = b.mul(central, const(b, y, 2.50662827463100050242))
    x = b.sqrt(b.mul(const(b, y, -2), b.log(y)))
    z = b.div(one, x)
    near = b.mul(z, _ratio(b, z, tables.NDTRI_P1, tables.NDTRI_Q1))
    far = b.mul(z, _ratio(b, z, tables.NDTRI_P2, tables.NDTRI_Q2))
    outer = b.sub(b.sub(x, b.div(b.log(x), x)), where(b, x, "lt", 8, near, far))
    outer = b.select(upper, outer, b.neg(outer))
    out = where(b, y, "gt", tail, central, outer)
    outside = b.or_(b.lt(y0, const(b, y0, 0)), b.gt(y0, one))
    out = b.select(outside, const(b, y0, math.nan), out)
    out = where(b, y0, "eq", 1, const(b, y0, math.inf), out)
    return where(b, y0, "eq", 0, const(b, y0, -math.inf), out)


def _modified(rule, order: int, scaled: bool):
    return lambda b, x: rule(b, x, order, scaled=scaled)


unary_table(
    (
        ("i0", _modified(_first_kind, 0, False)),
        ("special_i0e", _modified(_first_kind, 0, True)),
        ("special_i1", _modified(_first_kind, 1, False)),
        ("special_i1e", _modified(_first_kind, 1, True)),
        ("special_modified_bessel_i0", _modified(_first_kind, 0, False)),
        ("special_modified_bessel_i1", _modified(_first_kind, 1, False)),
        ("special_modified_bessel_k0", _modified(_second_kind, 0, False)),
        ("special_modified_bessel_k1", _modified(_second_kind, 1, False)),
        ("special_scaled_modified_bessel_k0", _modified(_second_kind, 0, True)),
        ("special_scaled_modified_bessel_k1", _modified(_second_kind, 1, True)),
        ("special_bessel_j0", lambda b, x: _bessel_j(b, x, 0)),
        ("special_bessel_j1", lambda b, x: _bessel_j(b, x, 1)),
        ("special_bessel_y0", lambda b, x: _bessel_y(b, x, 0)),
        ("special_bessel_y1", lambda b, x: _bessel_y(b, x, 1)),
        ("special_spherical_bessel_j0", _spherical_j0),
        ("special_airy_ai", _airy),
        ("special_erfcx", _erfcx),
        ("erfinv", _erfinv),
        ("special_ndtri", _ndtri),
    )
)
