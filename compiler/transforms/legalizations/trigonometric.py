"""Tangent and the inverse trigonometric functions in float32. ``ulps`` is measured.

The polynomials are those of the Cephes library (S. Moshier, "Methods and Programs for Mathematical Functions"), single
precision. Constants are split in two where a rounded one would cost the result its last bit.
"""

from __future__ import annotations

from math import nan

from torchstone.compiler.transforms.legalizations.common import Formula, formula

# pi = _PI + _PI_LOW to twice float32's precision.
_PI, _PI_LOW = 3.14159274101257324219, -8.74227800037248e-8
_TAN_3PI_8, _TAN_PI_8 = 2.414213562373095, 0.41421356237309503


@formula("tan", ulps=2.0)
def tan(x: Formula) -> Formula:
    """sin(x) / cos(x)."""
    return x.sin() / x.cos()


def _arctangent(a: Formula) -> Formula:
    """Return atan(a) for a of at least 0: a is first brought below tan(pi/8)."""
    far, near = a > _TAN_3PI_8, a <= _TAN_PI_8
    small = far.where(-1.0 / a, near.where(a, (a - 1.0) / (a + 1.0)))
    base = far.where(_PI / 2, near.where(0.0 * a, _PI / 4))
    z = small * small
    p = z.polynomial([8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1])
    return base + (small + small * z * p)


@formula("atan", ulps=3.0)
def atan(x: Formula) -> Formula:
    """Reduced at tan(pi/8) and tan(3 pi/8), then an odd polynomial."""
    return _arctangent(x.abs()).with_sign_of(x)


@formula("atan2", ulps=3.5)
def atan2(y: Formula, x: Formula) -> Formula:
    """The arc tangent of the smaller magnitude over the larger, put into its octant.

    The zero with a sign decides the half plane, as IEEE 754 has it: -0 is told by 1 / x.
    """
    a, b = y.abs(), x.abs()
    low, high = a.min(b), a.max(b)
    # 0/0 is the angle 0, and inf/inf that of a diagonal.
    ratio = (low == high).where((high == 0.0).where(high, 1.0), low / high)
    angle = _arctangent(ratio)
    angle = (a > b).where((_PI / 2 - angle) + _PI_LOW / 2, angle)
    left = (x < 0.0) | ((x == 0.0) & (1.0 / x < 0.0))
    angle = left.where((_PI - angle) + _PI_LOW, angle)
    below = (y < 0.0) | ((y == 0.0) & (1.0 / y < 0.0))
    nans = x.is_nan() | y.is_nan()
    return nans.where(nan, below.where(-angle, angle))


def _arcsine(a: Formula) -> Formula:
    """Return asin(a) for a in [0, 1/2]."""
    z = a * a
    p = z.polynomial([4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1])
    return a + a * z * p


@formula("asin", ulps=2.0)
def asin(x: Formula) -> Formula:
    """An odd polynomial up to 1/2; beyond pi/2 - 2 asin(sqrt((1 - |x|) / 2)); NaN beyond 1."""
    a = x.abs()
    near = a <= 0.5
    part = _arcsine(near.where(a, ((1.0 - a) * 0.5).sqrt()))
    return near.where(part, (_PI / 2 - part * 2.0) + _PI_LOW / 2).with_sign_of(x)


@formula("acos", ulps=1.5)
def acos(x: Formula) -> Formula:
    """pi/2 - asin(x) up to 1/2; beyond 2 asin(sqrt((1 - |x|) / 2)), or pi less that; NaN beyond 1."""
    a = x.abs()
    near = a <= 0.5
    part = _arcsine(near.where(a, ((1.0 - a) * 0.5).sqrt()))
    middle = _PI / 2 - (part.with_sign_of(x) - _PI_LOW / 2)
    outer = (x < 0.0).where(_PI - (part * 2.0 - _PI_LOW), part * 2.0)
    return near.where(middle, outer)
