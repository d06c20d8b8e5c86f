"""The regularized incomplete gamma functions P and Q, in float64 and without a loop over terms.

Up to x = 1.1 the power series (DLMF 8.7.3). Beyond, the smaller of both: with t = x e**±y in its integral,

    Q (x >= a, +) or P (x < a, -) = a D J,   D = x**a e**-x / gamma(a + 1),
    J = integral of e**-(x (e**±y - 1) -+ a y) over y > 0.

The integrand falls like e**-u to e**-u**2 in u = y / width; Takahasi and Mori's substitution u = e**(v - e**-v) makes
the trapezoidal rule exact to float64 with 120 nodes. The nodes are a dim of their own that is summed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, pointwise
from torchstone.compiler.transforms.expansions.special.functions import polynomial, where
from torchstone.compiler.transforms.rules import Expander, expands

_SMALL = 1.1
_TERMS = 20


def _sum_over(b: Expander, values: tuple[tuple[float, ...], ...], term: Callable[..., Value], *xs: Value) -> Value:
    """The sum of ``term`` over the numbers of tables of one length, which it gets as a last dim beside ``xs``."""
    (count,) = {len(v) for v in values}
    shape, dims = (*xs[0].shape, count), tuple(range(xs[0].rank))
    tables = (b.emit("constant", value=v, shape=(count,), dtype=dt.float64)[0] for v in values)
    wide = (b.broadcast(x, shape, dims) for x in xs)
    return b.reduce(term(*(b.broadcast(t, shape, (len(dims),)) for t in tables), *wide), "sum", (len(dims),))


def _nodes(low: float, high: float, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Places u and weights du of the trapezoidal rule in v."""
    step = (high - low) / (count - 1)
    v = [low + step * k for k in range(count)]
    u = [math.exp(t - math.exp(-t)) for t in v]
    return tuple(u), tuple(place * (1 + math.exp(-t)) * step for place, t in zip(u, v, strict=True))


_FEWER_NODES, _NODES = _nodes(-3.3, 3.5, 64), _nodes(-3.6, 3.6, 120)  # exact to 4e-9 and 1e-13


def _log1p_minus(b: Expander, m: Value) -> Value:
    """log(1 + m) - m; near 0 by the series of 2 artanh(s), s = m / (2 + m)."""
    s = b.div(m, b.add(const(b, m, 2), m))
    square = b.mul(s, s)
    series = polynomial(b, square, [1 / (2 * k + 3) for k in reversed(range(11))])
    near = b.mul(s, b.sub(b.mul(b.mul(const(b, m, 2), square), series), m))
    return where(b, b.abs(m), "lt", 0.3, near, b.sub(b.log1p(m), m))


def _expm1_minus(b: Expander, y: Value) -> Value:
    """e**y - 1 - y."""
    series = polynomial(b, y, [1 / math.factorial(k) for k in reversed(range(2, 14))])
    return where(b, b.abs(y), "lt", 0.3, b.mul(b.mul(y, y), series), b.sub(b.expm1(y), y))


# gamma(2 + z) for z in [0, 1]: Cephes, gamma.c.
_GAMMA_ABOVE = """
    1.60119522476751861407e-4 1.19135147006586384913e-3 1.04213797561761569935e-2 4.76367800457137231464e-2
    2.07448227648435975150e-1 4.94214826801497100753e-1 9.99999999999999996796e-1
"""
_GAMMA_BELOW = """
    -2.31581873324120129819e-5 5.39605580493303397237e-4 -4.45641913851797240494e-3 1.18139785222060435552e-2
    3.58236398605498653373e-2 -2.34591795718243348568e-1 7.14304917030273074085e-2 1.00000000000000000320
"""


def _gamma1p(b: Expander, a: Value, highest: int) -> Value:
    """gamma(1 + a) for a from 0 up to the highest: a product of factors, times the function between 2 and 3."""
    one = const(b, a, 1)
    whole = b.min(b.max(b.floor(a), one), const(b, a, highest))
    z = b.sub(a, whole)
    product = one
    for k in range(highest - 1):
        here = b.lt(const(b, a, k + 1), whole)
        product = b.mul(product, b.select(here, b.sub(a, const(b, a, k)), one))
    below = b.lt(a, one)
    z = b.select(below, a, z)
    above, under = (polynomial(b, z, [float(c) for c in t.split()]) for t in (_GAMMA_ABOVE, _GAMMA_BELOW))
    core = b.div(above, under)
    return b.select(below, b.div(core, b.add(one, a)), b.mul(product, core))


# Up to this a, the density is a product; beyond, it comes of its logarithm by Stirling's series.
_FEW = 10


def _density(b: Expander, a: Value, x: Value) -> Value:
    """x**a e**-x / gamma(a + 1), without a logarithm of large terms that cancel."""
    low, bounded = b.min(a, const(b, a, _FEW)), b.min(x, const(b, x, 2000))  # beyond, it is 0
    root = b.exp(b.mul(bounded, const(b, x, -0.5)))
    few = b.div(b.mul(b.mul(b.pow(bounded, low), root), root), _gamma1p(b, low, _FEW))
    inverse = b.div(const(b, a, 1), a)
    stirling = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    rest = b.mul(inverse, polynomial(b, b.mul(inverse, inverse), stirling))
    scale = b.div(const(b, a, 1), b.sqrt(b.mul(const(b, a, 2 * math.pi), a)))
    apart, ratio = b.div(b.sub(x, a), a), b.div(x, a)
    fall = where(b, ratio, "lt", 0.5, b.sub(b.log(ratio), apart), _log1p_minus(b, apart))
    many = b.mul(a, fall)
    return where(b, a, "lt", _FEW, few, b.mul(b.exp(b.sub(many, rest)), scale))


def _tail(b: Expander, a: Value, x: Value, density: Value, *, precise: bool) -> Value:
    """Q(a, x) where x >= a, else P(a, x); for x > 1.1."""
    above = b.ge(x, a)
    direction = b.select(above, const(b, x, 1), const(b, x, -1))
    apart, two = b.sub(x, a), const(b, x, 2)
    slope = b.abs(apart)
    # Where the exponent is about 1: slope y + x y**2 / 2 = 1.
    width = b.div(two, b.add(slope, b.sqrt(b.add(b.mul(slope, slope), b.mul(two, x)))))

    def term(u: Value, weight: Value, apart: Value, x: Value, stride: Value) -> Value:
        y = b.mul(stride, u)
        exponent = b.add(b.mul(apart, y), b.mul(x, _expm1_minus(b, y)))
        return b.mul(weight, b.exp(b.neg(exponent)))

    nodes = _NODES if precise else _FEWER_NODES
    total = _sum_over(b, nodes, term, apart, x, b.mul(direction, width))
    return b.mul(b.mul(density, a), b.mul(total, width))


def _lgamma1p(b: Expander, a: Value) -> Value:
    """log gamma(1 + a); below 1e-3 by its power series, as 1 + a would lose the digits of a."""
    series = (0.20738555102867398, -0.27058080842778454, 0.4006856343865314, -0.8224670334241132, 0.5772156649015329)
    near = b.neg(b.mul(a, polynomial(b, a, series)))
    return where(b, a, "lt", 1e-3, near, b.lgamma(b.add(a, const(b, a, 1))))


def _series(b: Expander, a: Value, x: Value, density: Value) -> tuple[Value, Value]:
    """P and Q for x up to 1.1: x**a / gamma(a) sum((-x)**n / (n! (a + n))). 1 - P would cancel where a is small."""
    powers = tuple(float(n) for n in range(1, _TERMS + 1))
    factors = tuple((-1) ** n / math.factorial(n) for n in range(1, _TERMS + 1))

    def term(n: Value, factor: Value, a: Value, x: Value) -> Value:
        return b.div(b.mul(factor, b.pow(x, n)), b.add(a, n))

    one = const(b, x, 1)
    rest = b.mul(a, _sum_over(b, (powers, factors), term, a, x))
    log = b.sub(b.mul(a, b.log(x)), _lgamma1p(b, a))
    below = b.mul(b.mul(density, b.exp(x)), b.add(one, rest))
    return below, b.neg(b.add(b.expm1(log), b.mul(b.exp(log), rest)))


def _in_range(b: Expander, a: Value, x: Value) -> tuple[Value, Value]:
    """Both made smaller where twice one of them overflows: there the result is 0 or 1, or 1/2 where they are equal."""
    one = const(b, x, 1)
    factor = where(b, b.max(a, x), "lt", 1e300, one, const(b, x, 2.0**-64))
    return b.mul(a, factor), b.mul(x, factor)


def _incomplete(*, upper: bool) -> Callable[[Expander, Value, Value], Value]:
    def formula(b: Expander, a: Value, x: Value) -> Value:
        dtype, precise = a.dtype, a.dtype == dt.float64
        a, x = b.cast(a, dt.float64), b.cast(x, dt.float64)
        zero, one, infinity = (const(b, x, v) for v in (0, 1, math.inf))
        given = a, x
        if precise:
            a, x = _in_range(b, a, x)
        density = _density(b, a, x)
        tail = _tail(b, a, x, density, precise=precise)
        # Q is the tail above a, P the one below: the other is 1 less it.
        wanted = b.ge(x, a) if upper else b.lt(x, a)
        out = b.select(wanted, tail, b.sub(one, tail))
        out = where(b, x, "le", _SMALL, _series(b, a, x, density)[upper], out)
        none, all_ = (one, zero) if upper else (zero, one)
        a, x = given
        out = b.select(b.eq(x, infinity), all_, out)
        out = b.select(b.eq(a, infinity), none, out)
        out = b.select(b.eq(x, zero), none, out)
        out = b.select(b.eq(a, zero), all_, out)
        negative = b.or_(b.lt(a, zero), b.lt(x, zero))
        both = b.and_(b.eq(a, infinity), b.eq(x, infinity))
        outside = b.or_(b.or_(negative, both), b.and_(b.eq(a, zero), b.not_(b.gt(x, zero))))
        return b.cast(b.select(outside, const(b, x, math.nan), out), dtype)

    return formula


@expands("aten.igamma.default")
def igamma(b: Expander, a: Value, x: Value) -> Value:
    return pointwise(b, lambda a, x: _incomplete(upper=False)(b, a, x), a, x)


@expands("aten.igammac.default")
def igammac(b: Expander, a: Value, x: Value) -> Value:
    return pointwise(b, lambda a, x: _incomplete(upper=True)(b, a, x), a, x)
