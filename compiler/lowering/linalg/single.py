"""``exp`` and ``erfc`` in float32 arithmetic: twice the elements to a vector register, and half the steps, of float64.

They are what softmax, sigmoid and GELU spend their time in. ``exp`` is off by 1.1 ULP at most and ``erfc`` by 5, where
``polynomials`` have half a ULP; subnormal results are rounded as all others are. NaN comes through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg import basic as s

# Adding it to a float32 of moderate size rounds to an integer, which is then in the low bits.
_SHIFT = 1.5 * 2.0**23
# log(2) in two parts: few integers times the first, which has 9 bits, are exact.
_LOG2_HIGH = 0.693359375
_LOG2_LOW = log(2) - _LOG2_HIGH
# (exp(r) - 1 - r) / r**2 for |r| <= log(2) / 2: near-minimax, as the next one.
_EXP = (0.5, 0.1666651964187622, 0.04166620969772339, 0.008368841372430325, 0.0013950368156656623)
# exp(t * t) erfc(t) at v = (t - 3) / (t + 3), 0 <= t <= 10.2, where erfc is 0 in float32.
_ERFC = (
    0.17900115251541138,
    -0.32623356580734253,
    0.2456037998199463,
    -0.15011578798294067,
    0.07166586071252823,
    -0.024394230917096138,
    0.004268875811249018,
    0.0007157307700254023,
    -0.0005945694865658879,
    2.8880802346975543e-05,
    5.591617082245648e-05,
)


def _float(value: float) -> Any:
    return s.constant(s.floating(32), value)


def _i32(value: int) -> Any:
    return s.constant(s.integer(32), value)


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    total = _float(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = mlir.math.fma(total, x, _float(coefficient))
    return total


def _clamp(x: Any, low: float, high: float) -> Any:
    """Return x between two bounds; NaN stays."""
    x = mlir.arith.select(s.compare_float("lt", x, _float(low)), _float(low), x)
    return mlir.arith.select(s.compare_float("gt", x, _float(high)), _float(high), x)


def _split(x: Any, bias: int, factors: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    """Return e**r and the lowest 9 bits of n + bias, of x = n log(2) + r, |r| <= log(2) / 2.

    ``factors`` are those that x is the rounded product of: r is that of the product itself.
    """
    arith, math = mlir.arith, mlir.math
    shifted = math.fma(x, _float(1 / log(2)), _float(_SHIFT + bias))
    n = arith.subf(shifted, _float(_SHIFT + bias))
    high = _float(-_LOG2_HIGH)
    r = math.fma(n, high, x) if factors is None else math.fma(*factors, arith.mulf(n, high))
    r = math.fma(n, _float(-_LOG2_LOW), r)
    power = _horner(r, [1, 1, *_EXP])
    return power, arith.bitcast(s.integer(32), shifted)


def _power(bits: Any) -> Any:
    """Return 2**n of the bits of n + 127."""
    return mlir.arith.bitcast(s.floating(32), mlir.arith.shli(bits, _i32(23)))


def exp(x: Any) -> Any:
    """2**n e**r; 2**n is two factors, for n may be beyond the exponents of float32."""
    arith = mlir.arith
    power, twice = _split(_clamp(x, -105, 90), 2 * 127)
    half = arith.shrsi(twice, _i32(1))
    return arith.mulf(arith.mulf(power, _power(half)), _power(arith.subi(twice, half)))


def erfc(x: Any) -> Any:
    """exp(-t**2) times a polynomial for t = |x|, and 2 less that for negative x; t**2 is not rounded.

    The result is computed 2**32 times too large, so that only the last step can meet a subnormal.
    """
    arith, math = mlir.arith, mlir.math
    t = math.absf(x)
    t = arith.select(s.compare_float("gt", t, _float(10.2)), _float(10.2), t)
    v = arith.divf(arith.subf(t, _float(3)), arith.addf(t, _float(3)))
    minus = arith.negf(t)
    power, n = _split(arith.mulf(minus, t), 32 + 127, factors=(minus, t))
    large = arith.mulf(arith.mulf(power, _horner(v, _ERFC)), _power(n))
    tail = arith.mulf(large, _float(2.0**-32))
    return arith.select(s.compare_float("lt", x, _float(0)), arith.subf(_float(2), tail), tail)


SINGLE: dict[str, Callable[[Any], Any]] = {"exp": exp, "erfc": erfc}
