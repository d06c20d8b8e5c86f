"""Hyperbolic functions and their inverses in float32. ``ulps`` is measured over all magnitudes."""

from __future__ import annotations

from math import nan

from torchstone.compiler.transforms.legalizations.common import Formula, formula

_LN2 = 0.6931471805599453


@formula("sinh", ulps=2.5)
def sinh(x: Formula) -> Formula:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|); beyond 80, where e overflows too soon, exp(|x|/2)**2 / 2."""
    a = x.abs()
    e = a.expm1()
    half = (a * 0.5).exp()
    near = (e + e / (e + 1.0)) * 0.5
    return (a < 80.0).where(near, (half * 0.5) * half).with_sign_of(x)


@formula("cosh", ulps=2.0)
def cosh(x: Formula) -> Formula:
    """(e + 1/e) / 2 with e = exp(|x|); beyond 80 exp(|x|/2)**2 / 2."""
    a = x.abs()
    e, half = a.exp(), (a * 0.5).exp()
    return (a < 80.0).where((e + 1.0 / e) * 0.5, (half * 0.5) * half)


@formula("tanh", ulps=2.5)
def tanh(x: Formula) -> Formula:
    """e / (e + 2) with e = expm1(2|x|); 1 beyond 10."""
    a = x.abs()
    e = (a * 2.0).expm1()
    return (a > 10.0).where(1.0, e / (e + 2.0)).with_sign_of(x)


@formula("asinh", ulps=2.0)
def asinh(x: Formula) -> Formula:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|; beyond 2**12 log(a) + log(2)."""
    a = x.abs()
    square = a * a
    near = (a + square / ((square + 1.0).sqrt() + 1.0)).log1p()
    return (a < 4096.0).where(near, a.log() + _LN2).with_sign_of(x)


@formula("acosh", ulps=2.0)
def acosh(x: Formula) -> Formula:
    """log1p(t + sqrt(2 t + t**2)) with t = x - 1; beyond 2**12 log(x) + log(2); NaN below 1."""
    t = x - 1.0
    near = (t + (t * 2.0 + t * t).sqrt()).log1p()
    return (x < 1.0).where(nan, (x < 4096.0).where(near, x.log() + _LN2))


@formula("atanh", ulps=2.5)
def atanh(x: Formula) -> Formula:
    """log1p(2 a / (1 - a)) / 2 with a = |x|; NaN beyond 1."""
    a = x.abs()
    # At 1 the quotient is infinite, and so is its logarithm.
    return ((a * 2.0 / (1.0 - a)).log1p() * 0.5).with_sign_of(x)
