"""Complex elementwise primitives, on pairs of float64 whatever the dtype: a complex64 result is rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg import scalars as s

Pair: TypeAlias = tuple[Any, Any]


def _double(value: float) -> Any:
    return s.constant(s.floating(64), value)


def _c99(name: str) -> Callable[..., Pair]:
    return lambda scope, *x: scope.library.call_complex(name, *x)


def _neg(scope: Any, x: Pair) -> Pair:
    return mlir.arith.negf(x[0]), mlir.arith.negf(x[1])


def _add(scope: Any, a: Pair, b: Pair) -> Pair:
    return mlir.arith.addf(a[0], b[0]), mlir.arith.addf(a[1], b[1])


def _sub(scope: Any, a: Pair, b: Pair) -> Pair:
    return mlir.arith.subf(a[0], b[0]), mlir.arith.subf(a[1], b[1])


def _mul(scope: Any, a: Pair, b: Pair) -> Pair:
    # The textbook formula, as c10::complex has it: no recovery of infinities from NaN (C99 Annex G).
    m = mlir.arith.mulf
    return mlir.arith.subf(m(a[0], b[0]), m(a[1], b[1])), mlir.arith.addf(m(a[0], b[1]), m(a[1], b[0]))


def _div(scope: Any, x: Pair, y: Pair) -> Pair:
    """Divide by Smith's method, scaling by the larger part of the divisor, as c10::complex and NumPy do.

    With |c| >= |d|: r = d/c, t = 1/(c + d r), (a + b r) t + i (b - a r) t; otherwise the mirror image of it. Dividing
    by 0 divides both parts by 0.
    """
    arith = mlir.arith
    (a, b), (c, d) = x, y
    abs_c, abs_d = mlir.math.absf(c), mlir.math.absf(d)
    by_c = s.compare_float("ge", abs_c, abs_d)
    large, small = arith.select(by_c, c, d), arith.select(by_c, d, c)
    ratio = arith.divf(small, large)
    scale = arith.divf(_double(1), arith.addf(large, arith.mulf(small, ratio)))
    ar, br = arith.mulf(a, ratio), arith.mulf(b, ratio)
    real = arith.select(by_c, arith.addf(a, br), arith.addf(ar, b))
    imaginary = arith.select(by_c, arith.subf(b, ar), arith.subf(br, a))
    zero = arith.andi(s.compare_float("eq", abs_c, _double(0)), s.compare_float("eq", abs_d, _double(0)))
    return (
        arith.select(zero, arith.divf(a, abs_c), arith.mulf(real, scale)),
        arith.select(zero, arith.divf(b, abs_c), arith.mulf(imaginary, scale)),
    )


def _abs(scope: Any, x: Pair) -> Any:
    return scope.library.call("hypot", *x)


def _expm1(scope: Any, x: Pair) -> Pair:
    """exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b/2)**2, which does not cancel."""
    a, b = x
    half = mlir.math.sin(mlir.arith.mulf(b, _double(0.5)))
    grown = mlir.arith.mulf(scope.library.call("expm1", a), mlir.math.cos(b))
    lost = mlir.arith.mulf(_double(2), mlir.arith.mulf(half, half))
    return mlir.arith.subf(grown, lost), mlir.arith.mulf(mlir.math.exp(a), mlir.math.sin(b))


def _log1p(scope: Any, x: Pair) -> Pair:
    """clog(1 + x), which does not overflow for large parts; near 0 its real part is log1p(a (2 + a) + b**2) / 2."""
    arith, call = mlir.arith, scope.library.call
    a, b = x
    shifted = arith.addf(a, _double(1))
    near = s.compare_float("lt", call("hypot", a, b), _double(0.5))
    square = arith.addf(arith.mulf(a, arith.addf(_double(2), a)), arith.mulf(b, b))
    close = arith.mulf(_double(0.5), call("log1p", square))
    far, angle = scope.library.call_complex("clog", (shifted, b))
    return arith.select(near, close, far), angle


def _rsqrt(scope: Any, x: Pair) -> Pair:
    return _div(scope, (_double(1), _double(0)), scope.library.call_complex("csqrt", x))


def _eq(scope: Any, a: Pair, b: Pair) -> Any:
    return mlir.arith.andi(s.compare_float("eq", a[0], b[0]), s.compare_float("eq", a[1], b[1]))


def _ne(scope: Any, a: Pair, b: Pair) -> Any:
    return mlir.arith.ori(s.compare_float("ne", a[0], b[0]), s.compare_float("ne", a[1], b[1]))


RULES: Mapping[str, Callable[..., Any]] = {
    "neg": _neg, "add": _add, "sub": _sub, "mul": _mul, "div": _div, "abs": _abs, "pow": _c99("cpow"),
    "exp": _c99("cexp"), "expm1": _expm1, "log": _c99("clog"), "log1p": _log1p,
    "sqrt": _c99("csqrt"), "rsqrt": _rsqrt, "eq": _eq, "ne": _ne,
    **{name: _c99(f"c{name}") for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    )},
}  # fmt: skip
