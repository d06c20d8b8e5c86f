"""The one table of tolerances: how far two correct results may be apart, by dtype; each departure has its reason."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchstone.conformance.program.literals import dtype_name


@dataclass(frozen=True)
class Tolerance:
    """``ulps``: units in the last place of the reference value; ``factor``: how many times eager's own error;
    ``tiny``: an absolute floor, in the units of the values."""

    ulps: float
    factor: float
    tiny: float


_F32_NORMAL = 2.0**-126

TABLE: dict[torch.dtype, Tolerance] = {
    # 8 ULP: correct math libraries stay within 4 (SLEEF 1, libm 1, GPU and polynomial kernels 2 to 4), on either side.
    # The floor is the smallest normal number: a compiler may flush subnormals to zero.
    torch.float64: Tolerance(8, 4, 2.0**-1022),
    torch.float32: Tolerance(8, 4, _F32_NORMAL),
    # 2 ULP: computed wider and rounded once, or rounded after each of a few steps. Hardware keeps float16's subnormals.
    torch.bfloat16: Tolerance(2, 4, _F32_NORMAL),
    torch.float16: Tolerance(2, 4, 2.0**-24),
    # 1 ULP: there is no arithmetic in these types, only conversion.
    torch.float8_e4m3fn: Tolerance(1, 2, 0.0),
    torch.float8_e4m3fnuz: Tolerance(1, 2, 0.0),
    torch.float8_e5m2: Tolerance(1, 2, 0.0),
    torch.float8_e5m2fnuz: Tolerance(1, 2, 0.0),
    torch.float8_e8m0fnu: Tolerance(1, 2, 0.0),
}

COMPONENT: dict[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The real dtype a complex one is made of. Complex errors are distances in the plane, in ULPs of the modulus."""

WIDER = 4.0
"""How many times the row's ULPs are allowed when no float64 run can referee."""

MODEL = 4.0
"""How many times the spread of the rounding model (``oracle.perturbation.rounding``) is allowed: its few random runs
fall short of the worst case, which a correct backend with another order of operations may meet."""


EXPLAINED = 64.0
"""How many times that spread eager's own error may be and still be rounding: one beyond it is of another nature, such
as a limit taken from the dtype."""

HARDLY = 1.0 + 2.0**-16
"""How many times eager's error a backend's may be where rounding explains neither: the rest of its own roundings, where
both compute the same thing with the same few digits (a Bessel function beside its zero)."""

AMPLIFIED = 2.0
"""How far, in spreads of sixteen runs of the rounding model, eager and a backend may both stray where rounding is
amplified beyond half the digits. One right run in seventeen strays further than sixteen others, few twice as far."""

OF_ITS_OWN = 0.75
"""Of the gaps between sixteen runs, put in order: how many have to be wider than half the digits of their range for
each run to have a number of its own. Of a jump between two sides one is."""

BESIDE = 1 / 4
"""How near to one of those numbers, in parts of their range, another right one is."""

TINY_STEP = 2.0**-12
"""In ULPs: how far inputs are moved to see whether they lie exactly on a discontinuity, and how steep a function is."""

LINEAR = 4.0
"""How many times further, or less far, than its slope says a number may go when inputs move by a ULP and be no jump."""

STRAYING = 8.0
"""How many times further than the first few runs of the rounding model the later ones may let an element stray: a jump
that only they meet strays further by far."""

NEAREST = 0.51
"""Units in the last place: half of one, and what computing in float32 first may add to it.

A sum, product, quotient or root of 16-bit numbers, computed in 16 bits by IEEE 754 or in float32 to within 40 of its
units and then rounded to nearest, is nearer than this. One that is cut off, or rounded twice, mostly is not.
"""

SAME_FORMULA = (1e-6, 1e-12)
"""Relative and absolute, in float64: a decomposition closer than this to its op computes the same, though terms that
cancel cost it some digits; the wrong ones among them (complex numbers, odd layouts) are off in their first digits."""

SAME_FUNCTION = 1e-3
"""Further than this from the float64 run, of 1 or of the value, SciPy means another function there: a pole, an edge."""

SAME_SUM = 1e-12
"""Relative, in float64: sums over one result that another order of their terms sets apart."""

SAME_EDGE = 1e-6
"""In powers of two: how near to the end of the range a sum of logarithms does not tell on which side it is."""

FALSE_ALARM = 1e-6
"""How often, at most, a backend that draws random numbers from eager's distribution fails a case."""


@dataclass(frozen=True)
class Departure:
    """Other ULPs for programs that call a target matching ``pattern``, in one dtype. Without a reason there is none."""

    pattern: str
    dtype: torch.dtype
    ulps: float
    reason: str


_NO_REFEREE = (
    "sums of large terms that cancel between the zeros: a fused multiply-add in eager's own build moves the result by "
    "tens of ULPs, and in float64 no wider run can say which is right"
)
DEPARTURES: tuple[Departure, ...] = (
    Departure("torch.special.airy_ai", torch.float64, 64, _NO_REFEREE),
    Departure("torch.special.bessel_*", torch.float64, 64, _NO_REFEREE),
)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or a complex dtype's component."""
    return COMPONENT.get(dtype, dtype)


def tolerance(dtype: torch.dtype, targets: Iterable[str] = ()) -> Tolerance:
    """The row for a floating or complex dtype, widened by the departures of the program's call targets."""
    real = real_dtype(dtype)
    if real not in TABLE:
        raise KeyError(f"no tolerance for {dtype_name(dtype)}")
    row = TABLE[real]
    called = list(targets)
    for departure in DEPARTURES:
        if departure.dtype == real and fnmatch.filter(called, departure.pattern):
            row = dataclasses.replace(row, ulps=max(row.ulps, departure.ulps))
    return row
