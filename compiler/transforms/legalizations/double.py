"""Functions of float64, by others of float64, and lgamma of float32 by way of it. ``ulps`` is measured."""

from __future__ import annotations

from math import factorial, inf, log, nan, pi
from math import sqrt as root

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.legalizations.common import Formula, formula
from torchstone.compiler.transforms.legalizations.exponential import exp2, log2, log10

DOUBLE = (dt.float64,)

formula("exp2", ulps=1.0, dtypes=DOUBLE)(exp2)
formula("log2", ulps=1.5, dtypes=DOUBLE)(log2)
formula("log10", ulps=2.0, dtypes=DOUBLE)(log10)


@formula("asin", ulps=2.0, dtypes=DOUBLE)
def asin(x: Formula) -> Formula:
    """The angle of (sqrt((1 - x)(1 + x)), x); NaN beyond 1."""
    return x.atan2(((1.0 - x) * (x + 1.0)).sqrt())


@formula("acos", ulps=2.0, dtypes=DOUBLE)
def acos(x: Formula) -> Formula:
    """The angle of (x, sqrt((1 - x)(1 + x))); NaN beyond 1."""
    return ((1.0 - x) * (x + 1.0)).sqrt().atan2(x)


@formula("sinh", ulps=2.5, dtypes=DOUBLE)
def sinh(x: Formula) -> Formula:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|); beyond 700, where e overflows too soon, exp(|x|/2)**2 / 2."""
    a = x.abs()
    e, half = a.expm1(), (a * 0.5).exp()
    return (a < 700.0).where((e + e / (e + 1.0)) * 0.5, (half * 0.5) * half).with_sign_of(x)


@formula("cosh", ulps=2.0, dtypes=DOUBLE)
def cosh(x: Formula) -> Formula:
    """(e + 1/e) / 2 with e = exp(|x|); beyond 700 exp(|x|/2)**2 / 2."""
    a = x.abs()
    e, half = a.exp(), (a * 0.5).exp()
    return (a < 700.0).where((e + 1.0 / e) * 0.5, (half * 0.5) * half)


@formula("asinh", ulps=2.5, dtypes=DOUBLE)
def asinh(x: Formula) -> Formula:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|; beyond 2**28 log(a) + log(2)."""
    a = x.abs()
    square = a * a
    near = (a + square / ((square + 1.0).sqrt() + 1.0)).log1p()
    return (a < 2.0**28).where(near, a.log() + log(2)).with_sign_of(x)


@formula("acosh", ulps=2.5, dtypes=DOUBLE)
def acosh(x: Formula) -> Formula:
    """log1p(t + sqrt(2 t + t**2)) with t = x - 1; beyond 2**28 log(x) + log(2); NaN below 1."""
    t = x - 1.0
    near = (t + (t * 2.0 + t * t).sqrt()).log1p()
    return (x < 1.0).where(nan, (x < 2.0**28).where(near, x.log() + log(2)))


@formula("atanh", ulps=2.5, dtypes=DOUBLE)
def atanh(x: Formula) -> Formula:
    """log1p(2 a / (1 - a)) / 2 with a = |x|; NaN beyond 1."""
    a = x.abs()
    return ((a * 2.0 / (1.0 - a)).log1p() * 0.5).with_sign_of(x)


# x exp(x**2) erfc(x) on [0.45, 27.5] in powers of (x - 3) / (x + 3): near-minimax, error 2e-19.
_ERFCX = (
    9.255831271152285e-10, -3.5662187997174704e-09, -7.747994588583868e-09, 2.394593351359073e-08,
    5.279145702302402e-08, -9.373294467262236e-08, -3.24550487084681e-07, 2.959359706562806e-07,
    1.884224834114897e-06, -9.922862636029846e-07, -1.1110653870778974e-05, 6.463941135887198e-06,
    6.898000918747095e-05, -8.460821121621664e-05, -0.00041254379814278507, 0.0012428761586472433,
    0.0009108226898106664, -0.014019825626105252, 0.04635026333125567, -0.09546975030663057,
    0.1398805476017708, -0.146583048032891, 0.09530622695922801, 0.5370034535441699,
)  # fmt: skip
# erf(x) / x in powers of x**2: the Taylor series, for |x| < 1/2.
_ERF = tuple((-1) ** n * 2 / (root(pi) * factorial(n) * (2 * n + 1)) for n in reversed(range(13)))


def _erfc_tail(x: Formula) -> Formula:
    """exp(-x**2) p(s) / x from 1/2 on, x**2 being h**2 + (x - h)(x + h) with h**2 exact."""
    h = (x * 1024.0).floor() * (1.0 / 1024.0)
    s = (x - 3.0) / (x + 3.0)
    tail = (-(h * h)).exp() * (((h - x) * (h + x)).exp() * (s.polynomial(_ERFCX) / x))
    # From 27.3 on the result is 0 in float64.
    return (x > 27.3).where(0.0, tail)


@formula("erf", ulps=3.0, dtypes=DOUBLE)
def erf(x: Formula) -> Formula:
    """x p(x**2) within 1/2 of 0, beyond it 1 less the tail, with the sign of x."""
    a = x.abs()
    return (a < 0.5).where(x * (x * x).polynomial(_ERF), (1.0 - _erfc_tail(a)).with_sign_of(x))


@formula("erfc", ulps=5.0, dtypes=DOUBLE)
def erfc(x: Formula) -> Formula:
    """1 - erf(x) up to 1/2, the tail beyond."""
    return (x < 0.5).where(1.0 - x.erf(), _erfc_tail(x))


# lgamma(x) / ((x - 1)(x - 2)) on [0.5, 3] in powers of (x - 1.25) / (x + 1.25): near-minimax, error 1e-18.
_NEAR = (
    -0.08753446952983403, 0.06109233223755291, 0.03158819037600508, -0.0047340277478689135,
    -0.04492979939038559, 0.03147288668310412, -0.020905195352497855, 0.023587785411075722,
    -0.029996088715212168, 0.02841505867380011, -0.0329135233650538, 0.0317328718701122,
    -0.038028955168174075, 0.03637116076077506, -0.04483653644202574, 0.04255004981203756,
    -0.05462679812331772, 0.05124965408460946, -0.06988500269235721, 0.06438030156914017,
    -0.09697900091157739, 0.08634870698246322, -0.15859622433229512, 0.12963990161427735,
    -0.46139596109204034, 0.5241164609163369,
)  # fmt: skip
# lgamma(x) on [3, 11] in powers of (x - 5.75) / (x + 5.75): near-minimax, error 5e-18.
_MIDDLE = (
    118.55739935930929, 114.9465055736855, 39.906428265128405, 40.898993340320935,
    61.01263576546705, 59.922296920536645, 56.124573296178916, 55.40684679246099,
    55.16407604727758, 54.28447025097474, 53.604168419288186, 52.59902184235593,
    51.83770016211056, 50.654584998072494, 49.748173980844804, 48.30970289988708,
    47.19400244053957, 45.35599485582352, 43.909535132999615, 41.35485575590648,
    39.31053867402385, 35.08734781002653, 31.64452688176436, 19.08689926728127,
    4.366716036622286,
)  # fmt: skip
# Stirling's series: B(2k) / (2k (2k - 1)), k = 7 … 1.
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)


@formula("lgamma", ulps=8.0, dtypes=DOUBLE)
def lgamma(x: Formula) -> Formula:
    """By two polynomials up to 11, with the zeros at 1 and 2 as factors, Stirling's series beyond, and reflection."""
    reflected = x < 0.5
    z = reflected.where(1.0 - x, x)
    near = (z - 1.0) * (z - 2.0) * ((z - 1.25) / (z + 1.25)).polynomial(_NEAR) + 0.0  # and no -0
    middle = ((z - 5.75) / (z + 5.75)).polynomial(_MIDDLE)
    over = 1.0 / z
    far = (z - 0.5) * (z.log() - 1.0) + (0.5 * log(2 * pi) - 0.5) + (over * over).polynomial(_STIRLING) * over
    value = (z < 3.0).where(near, (z < 11.0).where(middle, far))
    rest = x - x.round()
    mirrored = (pi / (rest * pi).sin().abs()).log() - value
    return (x.abs() == inf).where(inf, reflected.where(mirrored, value))


@formula("lgamma", ulps=1.0)
def lgamma_of_float32(x: Formula) -> Formula:
    """That of float64, rounded."""
    out = lgamma(Formula(x.b, x.b.cast(x.value, dt.float64)))
    return Formula(x.b, x.b.cast(out.value, dt.float32))
