"""Orthogonal polynomials of a degree that is a tensor. Eager: aten/src/ATen/native/Math.h.

Chebyshev's have closed forms for high degrees, the others a loop of their recurrence. All are computed in float64, and
NaN where eager's recurrence subtracts one infinity from another: as soon as the last but one value has overflowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torchstone.compiler.diagnostics import NOT_TAKEN
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, is_nan, loop, pointwise
from torchstone.compiler.transforms.expansions.core.comparison import LARGEST
from torchstone.compiler.transforms.expansions.indexing.index import check_all
from torchstone.compiler.transforms.expansions.special.functions import where
from torchstone.compiler.transforms.rules import Expander, expands

Formula = Callable[[Expander, Value, Value], Value]
# P of degree k + 1 from x, k and those of degrees k - 1 and k.
Recurrence = Callable[[Expander, Value, Value, Value, Value], Value]


def _register(name: str, formula: Formula) -> None:
    def rule(b: Expander, x: Any, n: Any) -> Value:
        return pointwise(b, lambda x, n: formula(b, x, _degree(b, n)), x, n)

    for overload in ("default", "x_scalar", "n_scalar"):
        expands.row(f"aten.special_{name}.{overload}", rule)


def _degree(b: Expander, n: Value) -> Value:
    """n truncated; what int64 cannot hold counts as negative, as it does where eager converts it."""
    fits = b.and_(b.ge(n, const(b, n, -(2.0**63))), b.lt(n, const(b, n, 2.0**63)))
    return b.select(fits, b.trunc(n), const(b, n, -1))


def _low_degrees(b: Expander, n: Value, first: Value, out: Value) -> Value:
    """A polynomial of degree 1, 0 (which is 1 even of a NaN) or less (0), and any other one."""
    return where(b, n, "gt", 1, out, where(b, n, "eq", 1, first, _low(b, n)))


def _low(b: Expander, n: Value) -> Value:
    return where(b, n, "eq", 0, const(b, n, 1), const(b, n, 0))


# Chebyshev's polynomials: with x = cos(a), or x = cosh(a) beyond 1, T = cos(n a), U = sin((n + 1) a) / sin(a),
# V = cos((n + 1/2) a) / cos(a / 2), W = sin((n + 1/2) a) / sin(a / 2).


def _within(b: Expander, x: Value, n: Value, kind: str) -> Value:
    """On [0, 1]; at 1 itself the ratio of the sines' arguments."""
    half = const(b, x, 0.5)
    angle = b.acos(x)
    if kind == "t":
        return b.cos(b.mul(n, angle))
    whole = kind == "u"
    times = b.add(n, const(b, x, 1) if whole else half)
    base = angle if whole else b.mul(angle, half)
    if kind == "v":
        return b.div(b.cos(b.mul(times, angle)), b.cos(base))
    at_one = times if whole else b.add(times, times)
    return where(b, x, "eq", 1, at_one, b.div(b.sin(b.mul(times, angle)), b.sin(base)))


def _beyond(b: Expander, x: Value, n: Value, kind: str, largest: float) -> Value:
    """Above 1, by e**a = r: T = r**n (1 + r**-2n) / 2, and so on, which overflows only where the value does."""
    one, minus_two = const(b, x, 1), const(b, x, -2)
    over = b.sub(x, one)
    more = b.add(over, b.sqrt(b.mul(over, b.add(over, const(b, x, 2)))))
    ratio, angle = b.add(one, more), b.log1p(more)
    if kind == "t":
        factor = b.mul(const(b, x, 0.5), b.add(one, b.exp(b.mul(minus_two, b.mul(n, angle)))))
    else:
        times = b.add(n, const(b, x, 1 if kind == "u" else 0.5))
        wave = b.mul(minus_two, b.mul(times, angle))
        base = b.mul(minus_two, angle) if kind == "u" else b.neg(angle)
        if kind == "v":
            factor = b.div(b.add(one, b.exp(wave)), b.add(one, b.exp(base)))
        else:
            factor = b.div(b.expm1(wave), b.expm1(base))
    factor = b.mul(factor, b.add(one, b.mul(n, _missing(b, x, ratio))))
    two_before = b.mul(b.pow(ratio, b.add(n, minus_two)), factor)
    # What ratio lacks is more than all of it from a degree on at which the polynomial has long overflowed.
    return where(b, b.abs(two_before), "gt", largest, const(b, x, math.nan), b.mul(b.pow(ratio, n), factor))


def _missing(b: Expander, x: Value, ratio: Value) -> Value:
    """The part of itself that r lacks by rounding, of which r**n lacks n times as much: a step of Newton's method
    towards r (2 x - r) = 1, where the difference is exact."""
    lost = b.fma(ratio, b.sub(b.add(x, x), ratio), const(b, x, -1))
    part = b.div(lost, b.fma(ratio, ratio, const(b, x, -1)))
    return where(b, ratio, "gt", 1, part, const(b, x, 0))


# Up to here by the recurrence, which is exact where the polynomial is 0, as the closed forms are not.
_LOW = 8


def _unrolled(b: Expander, x: Value, n: Value, first: Value, largest: float) -> Value:
    """2 x P - P, from degree 1, which is ``first``, up to the highest of the low ones."""
    before, last = const(b, x, 1), first
    out, two_before = last, before
    for degree in range(2, _LOW + 1):
        here = b.eq(n, const(b, n, degree))
        two_before = b.select(here, before, two_before)
        before, last = last, b.sub(b.mul(b.add(x, x), last), before)
        out = b.select(here, last, out)
    return where(b, b.abs(two_before), "gt", largest, const(b, x, math.nan), out)


def _chebyshev(kind: str, *, shifted: bool) -> Formula:
    mirror = {"v": "w", "w": "v"}.get(kind, kind)

    def formula(b: Expander, x: Value, n: Value) -> Value:
        largest = LARGEST[x.dtype.name]
        wide, degree = b.cast(x, dt.float64), b.cast(n, dt.float64)
        one = const(b, wide, 1)
        if shifted:
            wide = b.sub(b.add(wide, wide), one)
        size = b.abs(wide)
        below = b.lt(wide, const(b, wide, 0))

        def at_size(kind: str) -> Value:
            inside = _within(b, b.min(size, one), degree, kind)
            return where(b, size, "gt", 1, _beyond(b, b.max(size, one), degree, kind, largest), inside)

        # P(-x) = (-1)**n P(x), where V and W change places.
        out = at_size(kind)
        out = out if mirror == kind else b.select(below, at_size(mirror), out)
        halves = b.mul(degree, const(b, wide, 0.5))
        odd = b.ne(halves, b.floor(halves))
        out = b.select(b.and_(below, odd), b.neg(out), out)
        first = {
            "t": lambda: wide,
            "u": lambda: b.add(wide, wide),
            "v": lambda: b.sub(b.add(wide, wide), one),
            "w": lambda: b.add(b.add(wide, wide), one),
        }[kind]()
        low = _unrolled(b, wide, degree, first, largest)
        out = where(b, degree, "le", _LOW, low, out)
        return b.cast(_low_degrees(b, degree, first, out), x.dtype)

    return formula


for _kind in "tuvw":
    _register(f"chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=False))
    _register(f"shifted_chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=True))


# Polynomials by their recurrence, in float64: P of degree k + 1 from those of degrees k and k - 1.

# A loop ends after so many steps, seconds of them, or when all is NaN.
_HIGHEST = 2.0**16
# From a degree on, eager's Hermite polynomials are NaN.
_HERMITE_LIMIT = {"float32": 128, "float64": 512}


def _recurrence(first: Callable[[Expander, Value], Value], following: Recurrence, limits: Mapping[str, int]) -> Formula:
    """``first`` is the polynomial of degree 1; above a limit, NaN."""

    def formula(b: Expander, x: Value, n: Value) -> Value:
        dtype, largest = x.dtype, LARGEST[x.dtype.name]
        x, n = b.cast(x, dt.float64), b.cast(n, dt.float64)
        highest = float(limits.get(dtype.name, _HIGHEST))
        steps = where(b, n, "gt", highest, const(b, n, 0 if dtype.name in limits else highest), n)
        start = first(b, x)
        out, two_before = _looped(b, x, steps, start, following)
        out = where(b, b.abs(two_before), "gt", largest, const(b, x, math.nan), out)
        if dtype.name not in limits:  # what is NaN by then stays so
            known = b.or_(b.le(n, const(b, n, highest)), is_nan(b, out))
            check_all(b, known, f"{NOT_TAKEN}{b.op.name}: a degree above {highest:.0f}")
        out = where(b, n, "gt", highest, const(b, x, math.nan), _low_degrees(b, n, start, out))
        return b.cast(out, dtype)

    return formula


def _looped(b: Expander, x: Value, n: Value, first: Value, following: Recurrence) -> tuple[Value, Value]:
    """The polynomial of degree n and the one of degree n - 2, from 2 on."""

    def more(b: Expander, k: Value, before: Value, last: Value, out: Value, two_before: Value, *rest: Value) -> Value:
        _, n = rest
        left = b.and_(b.gt(n, b.broadcast(k, n.shape)), b.not_(is_nan(b, last)))
        return b.reduce(left, "or", tuple(range(n.rank)))

    def step(b: Expander, k: Value, before: Value, last: Value, out: Value, two_before: Value, *rest: Value) -> Any:
        x, n = rest
        after = b.add(k, const(b, k, 1))
        here = b.eq(n, b.broadcast(after, n.shape))
        new = following(b, x, b.broadcast(k, x.shape), before, last)
        # Once NaN, the loop may end before n.
        here = b.or_(here, b.and_(is_nan(b, new), b.gt(n, b.broadcast(k, n.shape))))
        return after, last, new, b.select(here, new, out), b.select(here, before, two_before)

    one = const(b, x, 1)
    carried = (b.scalar(1.0, dt.float64), one, first, first, one)
    *_, out, two_before = loop(b, more, step, carried, (x, n))
    return out, two_before


def _hermite(b: Expander, x: Value, k: Value, before: Value, last: Value) -> Value:
    """2 x H - 2 k H."""
    return b.sub(b.mul(b.add(x, x), last), b.mul(b.add(k, k), before))


def _probabilists(b: Expander, x: Value, k: Value, before: Value, last: Value) -> Value:
    """x He - k He."""
    return b.sub(b.mul(x, last), b.mul(k, before))


def _laguerre(b: Expander, x: Value, k: Value, before: Value, last: Value) -> Value:
    """((2 k + 1 - x) L - k L) / (k + 1)."""
    after = b.add(k, const(b, x, 1))
    grown = b.mul(b.sub(b.add(k, after), x), last)
    return b.div(b.sub(grown, b.mul(k, before)), after)


def _legendre(b: Expander, x: Value, k: Value, before: Value, last: Value) -> Value:
    """((2 k + 1) x P - k P) / (k + 1)."""
    after = b.add(k, const(b, x, 1))
    grown = b.mul(b.mul(b.add(k, after), x), last)
    return b.div(b.sub(grown, b.mul(k, before)), after)


_register("hermite_polynomial_h", _recurrence(lambda b, x: b.add(x, x), _hermite, _HERMITE_LIMIT))
_register("hermite_polynomial_he", _recurrence(lambda b, x: x, _probabilists, _HERMITE_LIMIT))
_register("laguerre_polynomial_l", _recurrence(lambda b, x: b.sub(const(b, x, 1), x), _laguerre, {}))
_register("legendre_polynomial_p", _recurrence(lambda b, x: x, _legendre, {}))
