"""Exponentials, logarithms, roots and the error function in float32. ``ulps`` is measured over all magnitudes."""

from __future__ import annotations

from math import factorial, inf, nan, pi
from math import sqrt as sqrt_

from torchstone.compiler.transforms.legalizations.common import Formula, formula


@formula("exp2", ulps=1.0)
def exp2(x: Formula) -> Formula:
    """pow(2, x)."""
    return Formula(x.b, x.of(2.0)).pow(x)


@formula("sqrt", ulps=1.0)
def sqrt(x: Formula) -> Formula:
    """pow(x, 1/2) above 0; ±0 and NaN themselves; NaN below."""
    return (x > 0.0).where(x.pow(0.5), (x < 0.0).where(nan, x))


@formula("rsqrt", ulps=1.5)
def rsqrt(x: Formula) -> Formula:
    """1 / sqrt(x).

    With s = m 2**e the root, 1 <= m < 2: half an ULP of s is 2**(e - 24), which moves 1 / s by 2**(-e - 24) / m**2. An
    ULP of 1 / s, which lies above 2**(-e - 1), is 2**(-e - 24): it moves by one at most, and rounding by half of one.
    No root and no inverse of one is subnormal, 2**-75 < s < 2**64.
    """
    return 1.0 / x.sqrt()


@formula("expm1", ulps=1.5)
def expm1(x: Formula) -> Formula:
    """exp(x) - 1; within 1/2 of 0, where that cancels, x + x**2 p(x), with p the Taylor series."""
    p = x.polynomial([1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2])
    near = (x == 0.0).where(x, x + x * x * p)  # -0 + 0 would be 0
    return (x.abs() < 0.5).where(near, x.exp() - 1.0)


@formula("log1p", ulps=2.0)
def log1p(x: Formula) -> Formula:
    """log(u) - ((u - 1) - x) / u with u = 1 + x: the second term is what rounding u lost."""
    u = x + 1.0
    corrected = u.log() - ((u - 1.0) - x) / u
    # x itself where it is all lost (±0 included); at -1 and inf the correction is NaN.
    exceptional = (u == 0.0) | (u == inf)
    return (u == 1.0).where(x, exceptional.where(u.log(), corrected))


def _exact_powers(x: Formula, base: float, estimate: Formula) -> Formula:
    """Return the nearest integer to the estimate where it is the logarithm exactly, else the estimate."""
    n = estimate.round()
    hit = Formula(x.b, x.of(base)).pow(n) == x
    # A negative power of ten is no float32: a float32 equal to a rounded one has another logarithm.
    hit = hit if base == 2.0 else hit & (n >= 0.0)
    return hit.where(n, estimate)


@formula("log2", ulps=1.5)
def log2(x: Formula) -> Formula:
    """log(x) / log(2), exact at the powers of two."""
    return _exact_powers(x, 2.0, x.log() * 1.4426950408889634)


@formula("log10", ulps=2.0)
def log10(x: Formula) -> Formula:
    """log(x) / log(10), exact at the powers of ten."""
    return _exact_powers(x, 10.0, x.log() * 0.4342944819032518)


# x * exp(x**2) * erfc(x) on [0.45, 10.3] in powers of (x - 2.5) / (x + 2.5): near-minimax, error 1e-9.
_ERFCX = (
    0.000324775981002, 0.00010866955604, -0.00261127867653, 0.00179374208683, 0.0183749873153, -0.0714455235383,
    0.141331583284, -0.175368841877, 0.124689985356, 0.527015910061,
)  # fmt: skip


# erf(x) / x in powers of x**2: the Taylor series, for |x| < 1/2.
_ERF = tuple((-1) ** n * 2 / (sqrt_(pi) * factorial(n) * (2 * n + 1)) for n in reversed(range(8)))


def _erfc_tail(x: Formula) -> Formula:
    """exp(-x**2) p(s) / x from 1/2 on, x**2 being h**2 + (x - h)(x + h) with h**2 exact."""
    h = (x * 128.0).floor() * (1.0 / 128.0)
    s = (x - 2.5) / (x + 2.5)
    tail = (-(h * h)).exp() * (((h - x) * (h + x)).exp() * (s.polynomial(_ERFCX) / x))
    # From 10.1 on the result is 0 in float32.
    return (x > 10.3).where(0.0, tail)


@formula("erf", ulps=3.0)
def erf(x: Formula) -> Formula:
    """x p(x**2) within 1/2 of 0, beyond it 1 less the tail, with the sign of x."""
    a = x.abs()
    return (a < 0.5).where(x * (x * x).polynomial(_ERF), (1.0 - _erfc_tail(a)).with_sign_of(x))


@formula("erfc", ulps=4.5)
def erfc(x: Formula) -> Formula:
    """1 - erf(x) up to 1/2, the tail beyond."""
    return (x < 0.5).where(1.0 - x.erf(), _erfc_tail(x))
