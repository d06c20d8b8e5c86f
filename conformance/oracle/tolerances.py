"""The one table of tolerances: how far two correct results may be apart, by dtype; each departure has its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchstone.conformance.oracle.op_traits.references import NO_REFERENCE_IN_FLOAT64
from torchstone.conformance.oracle.op_traits.trait import Trait
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

NO_REFERENCE_FACTOR = 4.0
"""Ratio of ULPs: how many times the row's ULPs are allowed when there is no float64 run."""

SPREAD_FACTOR = 4.0
"""Ratio of errors: how many times the spread of the rounding model (``oracle.perturbation.rounding``) is allowed. Its
few random runs fall short of the worst case, which a correct backend with another order of operations may meet."""

MAX_EAGER_ERROR_TO_SPREAD = 64.0
"""Ratio of errors: how many times the spread and the ULPs together eager's own error may be, and still be explained by
rounding. An error beyond it is of another nature, such as a limit taken from the dtype."""

MAX_ERROR_TO_EAGER_ERROR = 1.0 + 2.0**-16
"""Ratio of errors: how many times eager's error a backend's may be where rounding does not explain eager's. The little
above 1 is for the rest of its own roundings, where both compute the same thing with the same few digits (a Bessel
function beside its zero)."""

AMPLIFICATION_FACTOR = 2.0
"""Ratio of errors: how far, in spreads of twelve runs, a sum in float64 may be off whose large terms cancel. One right
run in thirteen strays further than twelve others, few twice as far."""

SUB_ULP_STEP = 2.0**-12
"""In ULPs: how far inputs are moved to see whether they lie exactly on a discontinuity."""

MAX_SPACING_RATIO = 8.0
"""Ratio of distances: how far a number may be from the next of many runs, in the median spacing of the eight on that
side, where no search tells (float64 has no runs between its neighbours). Beyond all runs: a quarter of it. Among runs
that are as dense on either side one right number in 2**16 is further from both."""

MAX_SPREAD_GROWTH = 8.0
"""Ratio of spreads: how many times further than in the first few runs of the rounding model an element may stray in a
later one that is to count, where most do not stray further still, and than in the last one that strays less; and how
many times further than ``SPREAD_FACTOR`` spreads eager may be for its error to count. One that meets a jump strays
further by far."""

MAX_BEND = 0.125
"""Ratio of errors: how far from proportion to its roundings, in spreads, a run may stray that is to count as smooth. Of
a wave that bends no more, no extremum lies within ``SPREAD_FACTOR`` spreads; a quarter would let one in."""

SINGLE_ROUNDING_ULPS = 0.51
"""In ULPs: half of one, and what computing in float32 first may add to it.

A sum, product, quotient or root of 16-bit numbers, computed in 16 bits by IEEE 754 or in float32 to within 40 of its
units and then rounded to nearest, is nearer than this. One that is cut off, or rounded twice, mostly is not."""

FORMULA_TOLERANCE = (1e-6, 1e-12)
"""Relative and absolute, in float64: a decomposition closer than this to its op computes the same, though terms that
cancel cost it some digits. The wrong ones among them (complex numbers, odd layouts) are off in their first digits."""

SCIPY_TOLERANCE = 1e-3
"""Relative to the value, or to 1 where that is larger: further than this from the float64 run, SciPy means another
function there: a pole, an edge."""

SUM_RTOL = 1e-12
"""Relative, in float64: sums over one result that another order of their terms sets apart."""

RANGE_EDGE_LOG2 = 1e-6
"""In powers of two: how near to the end of the range a sum of logarithms does not tell on which side it is."""

FALSE_POSITIVE_RATE = 1e-6
"""Probability: how often, at most, a backend that draws random numbers from eager's distribution fails a case."""


@dataclass(frozen=True)
class Departure:
    """Other ULPs for programs that call an op with a trait, in one dtype. The trait has the reason."""

    trait: Trait
    dtype: torch.dtype
    ulps: float


DEPARTURES: tuple[Departure, ...] = (Departure(NO_REFERENCE_IN_FLOAT64, torch.float64, 64),)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or a complex dtype's component."""
    return COMPONENT.get(dtype, dtype)


def tolerance(dtype: torch.dtype, targets: Iterable[str] = ()) -> Tolerance:
    """The row for a floating or complex dtype, widened by the departures of the program's call targets."""
    real = real_dtype(dtype)
    if real not in TABLE:
        raise KeyError(f"no tolerance for {dtype_name(dtype)}")
    row = TABLE[real]
    called = {target.removeprefix("torch.") for target in targets}
    for departure in DEPARTURES:
        if departure.dtype == real and called & departure.trait.ops.keys():
            row = dataclasses.replace(row, ulps=max(row.ulps, departure.ulps))
    return row
