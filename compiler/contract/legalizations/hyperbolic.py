"""Hyperbolic functions and their inverses in float32. The bounds are measured over all magnitudes, see the tests."""

from __future__ import annotations

from math import nan

from torchstone.compiler.contract.legalizations.common import Formula, formula

_LN2 = 0.6931471805599453


@formula("sinh")
def sinh(x: Formula) -> Formula:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|); beyond 80, where e overflows too soon, exp(|x|/2)**2 / 2. 3 ULP."""
    a = x.abs()
    e = a.expm1()
    half = (a * 0.5).exp()
    near = (e + e / (e + 1.0)) * 0.5
    return (a < 80.0).where(near, (half * 0.5) * half).with_sign_of(x)


@formula("cosh")
def cosh(x: Formula) -> Formula:
    """(e + 1/e) / 2 with e = exp(|x|); beyond 80 exp(|x|/2)**2 / 2. 2 ULP."""
    a = x.abs()
    e, half = a.exp(), (a * 0.5).exp()
    return (a < 80.0).where((e + 1.0 / e) * 0.5, (half * 0.5) * half)


@formula("tanh")
def tanh(x: Formula) -> Formula:
    """e / (e + 2) with e = expm1(2|x|); 1 beyond 10. 3 ULP."""
    a = x.abs()
    e = (a * 2.0).expm1()
    return (a > 10.0).where(1.0, e / (e + 2.0)).with_sign_of(x)


@formula("asinh")
def asinh(x: Formula) -> Formula:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|; beyond 2**12 log(a) + log(2). 3 ULP."""
    a = x.abs()
    square = a * a
    near = (a + square / ((square + 1.0).sqrt() + 1.0)).log1p()
    return (a < 4096.0).where(near, a.log() + _LN2).with_sign_of(x)


@formula("acosh")
def acosh(x: Formula) -> Formula:
    """log1p(t + sqrt(2 t + t**2)) with t = x - 1; beyond 2**12 log(x) + log(2); NaN below 1. 3 ULP."""
    t = x - 1.0
    near = (t + (t * 2.0 + t * t).sqrt()).log1p()
    return (x < 1.0).where(nan, (x < 4096.0).where(near, x.log() + _LN2))


@formula("atanh")
def atanh(x: Formula) -> Formula:
    """log1p(2 a / (1 - a)) / 2 with a = |x|; NaN beyond 1. 3 ULP."""
    a = x.abs()
    # At 1 the quotient is infinite, and so is its logarithm.
    return ((a * 2.0 / (1.0 - a)).log1p() * 0.5).with_sign_of(x)
