"""Functions of float32 as polynomials in float64, rounded once: no calls, so LLVM computes many elements at a time.

The polynomials are off by less than 1e-9, a hundredth of what the rounding to float32 is; ``float64`` has the range to
do without special cases for subnormals and overflow. NaN comes through every one of them; a result of 0 has the sign
of the argument. Two that much time is spent in are float32 throughout: ``single``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, log
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg import basic as s
from torchstone.compiler.lowering.linalg.single import SINGLE

# Adding it to a float64 of moderate size rounds to an integer, which is then in the low bits.
_SHIFT = 1.5 * 2.0**52
_SIGNIFICAND = (1 << 52) - 1
_ONE = 1023 << 52
# erf(x) / x at u = x * x / 8 - 1, |x| <= 4: interpolated at Chebyshev's points.
_ERF = (
    0.3535309956434049,
    -0.17657623580039289,
    0.13167511777583008,
    -0.10771029288637649,
    0.090208941342789797,
    -0.074730486797572965,
    0.059887829583056336,
    -0.045744312671717247,
    0.033053291695886278,
    -0.022562558304240421,
    0.014381038744725426,
    -0.0083840442549589691,
    0.0047749462202794348,
    -0.0029097129787577338,
    0.0014101528933356117,
    -0.00032551961425939918,
    0.00017322950344877359,
    -0.000246422017593623,
    9.4038165786370983e-05,
)


def _double(value: float) -> Any:
    return s.constant(s.floating(64), value)


def _i64(value: int) -> Any:
    return s.constant(s.integer(64), value)


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    """Return the polynomial with these coefficients, lowest first."""
    total = _double(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = mlir.math.fma(total, x, _double(coefficient))
    return total


def _clamp(x: Any, low: float, high: float) -> Any:
    """Return x between two bounds; NaN stays."""
    x = mlir.arith.select(s.compare_float("lt", x, _double(low)), _double(low), x)
    return mlir.arith.select(s.compare_float("gt", x, _double(high)), _double(high), x)


def _split(x: Any) -> tuple[Any, Any]:
    """Return r and 2**n of x = n log(2) + r, |r| <= log(2) / 2, for |x| < 700."""
    arith, math = mlir.arith, mlir.math
    shifted = math.fma(x, _double(1 / log(2)), _double(_SHIFT))
    n = arith.subf(shifted, _double(_SHIFT))
    remainder = math.fma(n, _double(-log(2)), x)
    bits = arith.shli(arith.bitcast(s.integer(64), shifted), _i64(52))
    return remainder, arith.bitcast(s.floating(64), arith.addi(bits, _i64(_ONE)))


def exp(x: Any) -> Any:
    remainder, power = _split(_clamp(x, -200, 200))
    return mlir.arith.mulf(_horner(remainder, [1 / factorial(k) for k in range(9)]), power)


def exp2(x: Any) -> Any:
    return exp(mlir.arith.mulf(_clamp(x, -300, 300), _double(log(2))))


def expm1(x: Any) -> Any:
    """(2**n - 1) + 2**n (e**r - 1)."""
    arith, math = mlir.arith, mlir.math
    remainder, power = _split(_clamp(x, -200, 200))
    grown = arith.mulf(remainder, _horner(remainder, [1 / factorial(k + 1) for k in range(9)]))
    return math.copysign(math.fma(power, grown, arith.subf(power, _double(1))), x)


def tanh(x: Any) -> Any:
    """(e**2x - 1) / (e**2x + 1)."""
    arith = mlir.arith
    grown = expm1(arith.mulf(_clamp(x, -20, 20), _double(2)))
    return arith.divf(grown, arith.addf(grown, _double(2)))


def _logarithm(x: Any, near: Any) -> tuple[Any, Any]:
    """Return n and log(m) of x = 2**n m, sqrt(1/2) <= m < sqrt(2); where n is 0, m - 1 is ``near``.

    log(m) = 2 artanh(s), s = (m - 1) / (m + 1).
    """
    arith = mlir.arith
    i64 = s.integer(64)
    bits = arith.bitcast(i64, x)
    # The exponent as if the significand began at sqrt(1/2), whose bits these are.
    half = 0x3FE6A09E667F3BCD
    offset = arith.subi(bits, _i64(half))
    n = arith.shrsi(offset, _i64(52))
    m = arith.bitcast(s.floating(64), arith.addi(arith.andi(offset, _i64(_SIGNIFICAND)), _i64(half)))
    f = arith.select(s.compare_int("eq", n, _i64(0)), near, arith.subf(m, _double(1)))
    ratio = arith.divf(f, arith.addf(f, _double(2)))
    series = _horner(arith.mulf(ratio, ratio), [2 / (2 * k + 1) for k in range(7)])
    # From an integer without a conversion, which machines without AVX-512 have not for vectors of 64 bits.
    count = arith.subf(arith.bitcast(s.floating(64), arith.addi(n, _i64(0x4338000000000000))), _double(_SHIFT))
    return count, arith.mulf(ratio, series)


def _edges(x: Any, value: Any) -> Any:
    """Return the logarithm of x with its values at 0, below it, at infinity and at NaN."""
    arith = mlir.arith
    value = arith.select(s.compare_float("eq", x, _double(0)), _double(float("-inf")), value)
    value = arith.select(s.compare_float("lt", x, _double(0)), _double(float("nan")), value)
    outside = arith.ori(s.compare_float("eq", x, _double(float("inf"))), s.is_nan(x))
    return arith.select(outside, x, value)


def _log(scale: float) -> Callable[[Any], Any]:
    """Return the rule of ``scale`` times the natural logarithm."""

    def rule(x: Any) -> Any:
        n, rest = _logarithm(x, mlir.arith.subf(x, _double(1)))
        rest = rest if scale == 1 else mlir.arith.mulf(rest, _double(scale))
        return _edges(x, mlir.math.fma(n, _double(scale * log(2)), rest))

    return rule


def log1p(x: Any) -> Any:
    u = mlir.arith.addf(x, _double(1))
    n, rest = _logarithm(u, x)
    return mlir.math.copysign(_edges(u, mlir.math.fma(n, _double(log(2)), rest)), x)


def erf(x: Any) -> Any:
    inside = _clamp(x, -4, 4)
    u = mlir.math.fma(mlir.arith.mulf(inside, inside), _double(1 / 8), _double(-1))
    return mlir.arith.mulf(inside, _horner(u, _ERF))


POLYNOMIALS: dict[str, Callable[[Any], Any]] = {
    "exp2": exp2, "expm1": expm1, "tanh": tanh, "erf": erf,
    "log": _log(1), "log2": _log(1 / log(2)), "log10": _log(1 / log(10)), "log1p": log1p,
}  # fmt: skip


def polynomial(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return an elementwise rule: a polynomial for float32, ``otherwise`` for float64."""

    def rule(scope: Any, x: Any) -> Any:
        if x.type.width != 32:
            return otherwise(scope, x)
        return in_float32(name, x)

    return rule


def in_float32(name: str, x: Any) -> Any:
    """Apply the polynomial of this name to a float32 number."""
    if name in SINGLE:
        return SINGLE[name](x)
    return mlir.arith.truncf(s.floating(32), POLYNOMIALS[name](mlir.arith.extf(s.floating(64), x)))
