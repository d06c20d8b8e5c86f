"""The complementary error function in float32. ``ulps`` is measured over all magnitudes."""

from __future__ import annotations

from torchstone.compiler.transforms.legalizations.common import Formula, formula

# x * exp(x**2) * erfc(x) on [0.45, 10.3] in powers of (x - 2.5) / (x + 2.5): near-minimax, error 1e-9.
_ERFCX = (
    0.000324775981002, 0.00010866955604, -0.00261127867653, 0.00179374208683, 0.0183749873153, -0.0714455235383,
    0.141331583284, -0.175368841877, 0.124689985356, 0.527015910061,
)  # fmt: skip


@formula("erfc", ulps=4.5)
def erfc(x: Formula) -> Formula:
    """1 - erf(x) up to 1/2; beyond exp(-x**2) p(s) / x, x**2 being h**2 + (x - h)(x + h) with h**2 exact."""
    h = (x * 128.0).floor() * (1.0 / 128.0)
    s = (x - 2.5) / (x + 2.5)
    tail = (-(h * h)).exp() * (((h - x) * (h + x)).exp() * (s.polynomial(_ERFCX) / x))
    # From 10.1 on the result is 0 in float32.
    return (x < 0.5).where(1.0 - x.erf(), (x > 10.3).where(0.0, tail))
