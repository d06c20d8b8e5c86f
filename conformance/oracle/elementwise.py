"""Element by element: which of the backend's numbers are right, given eager's and, when there is one, float64's.

Nothing here averages or sums over elements; every tensor of booleans has one entry for each number judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.conformance.oracle.tolerances import (
    BESIDE,
    EXPLAINED,
    HARDLY,
    LINEAR,
    MODEL,
    OF_ITS_OWN,
    TINY_STEP,
    Tolerance,
)
from torchstone.conformance.oracle.ulp import precision, ulp, wide


@dataclass(frozen=True)
class Reference:
    """What the float64 run says of one result: its values, and the spread of the rounding model around them."""

    values: Tensor
    spread: Tensor
    smooth: Tensor | None = None
    """Where the spread is proportional to the size of the roundings, which no jump is."""


def same(left: Tensor, right: Tensor) -> Tensor:
    """Equal numbers, or both NaN; minus zero equals zero (where it does not: zeros.py).

    Complex numbers that are both not finite agree when each component that is NaN in neither agrees: how infinities
    spread through complex arithmetic (C99, annex G) is not something PyTorch promises.
    """
    if left.is_complex():
        a, b = torch.view_as_real(left), torch.view_as_real(right)
        either = torch.isnan(a) | torch.isnan(b)
        loose = ~torch.isfinite(left) & ~torch.isfinite(right) & ((a == b) | either).all(-1)
        return loose | (left == right)
    return (left == right) | (torch.isnan(left) & torch.isnan(right))


def near(actual: Tensor, expected: Tensor, dtype: torch.dtype, ulps: float, tiny: float) -> Tensor:
    """The same-dtype comparison, on float64 or complex128 copies: same, or finite and within ``ulps`` of expected.

    Of complex numbers that are both not finite the parts are compared, each by its own ULPs; see ``same`` for NaN.
    """
    finite = torch.isfinite(actual) & torch.isfinite(expected)
    distance = torch.abs(actual - expected)
    found = same(actual, expected) | (finite & (distance <= ulps * ulp(expected.abs(), dtype) + tiny))
    if actual.is_complex():
        a, b = torch.view_as_real(actual), torch.view_as_real(expected)
        parts = near(a, b, dtype, ulps, tiny) | torch.isnan(a) | torch.isnan(b)
        found |= ~torch.isfinite(actual) & ~torch.isfinite(expected) & parts.all(-1)
    return found


def allowed(expected: Tensor, reference: Reference, dtype: torch.dtype, row: Tolerance) -> Tensor:
    """How far from float64 the backend's numbers may be where eager's are finite: see ``refereed``."""
    truth, spread = reference.values, reference.spread
    bound = row.ulps * ulp(truth.abs(), dtype) + row.tiny
    eager_error = torch.where(torch.isfinite(expected), torch.abs(expected - truth), 0.0)
    explained = eager_error <= EXPLAINED * (spread + bound)
    finite = torch.isfinite(truth)
    largest = truth.abs()[finite].max() if bool(finite.any()) else torch.zeros((), dtype=torch.float64)
    cap = 2.0 ** (precision(dtype) // 2) * ulp(largest, dtype)
    slack = torch.where(explained, MODEL * spread + row.factor * eager_error, HARDLY * eager_error)
    capped = torch.minimum(slack, cap)
    if reference.smooth is not None:
        capped = torch.where(reference.smooth & explained, slack, capped)
    return bound + capped


def refereed(actual: Tensor, expected: Tensor, reference: Reference, dtype: torch.dtype, row: Tolerance) -> Tensor:
    """Where float64 absolves the backend: it is no further from the truth than eager is, within factor and bound.

    All tensors are float64 or complex128, of one shape; ``dtype`` is what the results really had.

    - Eager finite: the backend must be finite, and ``|backend - f64| <= ulps * ulp(f64) + factor * |eager - f64| +
      MODEL * spread``. Where the rounding model does not explain eager's error, the factor is ``HARDLY`` above 1: the
      two runs may compute different things there (a limit taken from the dtype, a branch gone the other way). What
      exceeds the ULPs is capped at half the digits of the tensor's largest value, so that no jump, however explained,
      is a pass; where the spread is known to be smooth there is no cap, because terms may cancel entirely.
    - Eager overflowed or gave NaN on the way: the backend must be within the ULPs and the spread of float64, or be
      float64 rounded to the dtype, or have overflowed where those ULPs do.
    """
    truth = reference.values
    bound = row.ulps * ulp(truth.abs(), dtype) + row.tiny
    finite = torch.isfinite(truth)
    within = torch.isfinite(actual) & finite & (torch.abs(actual - truth) <= allowed(expected, reference, dtype, row))
    rounded = same(wide(truth.to(dtype)), actual)
    over = finite & same(wide((truth + torch.sgn(truth) * bound).to(dtype)), actual) & ~torch.isfinite(actual)
    lost = (within & representable_range(truth, dtype)) | rounded | over
    return torch.where(torch.isfinite(expected), within, lost)


def representable_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Where a float64 value does not overflow ``dtype``."""
    return torch.isfinite(wide(values.to(dtype)))


def strewn(runs: list[Tensor]) -> Tensor:
    """Where runs of the rounding model are strewn over their range.

    A jump leaves a gap between its two sides, wider than half the range; where rounding is amplified by steps that are
    continuous there is none, however far the runs stray. Of complex numbers both parts are. Few runs tell nothing.
    """
    stacked = torch.stack(runs)
    if len(runs) < 8:
        return torch.zeros(stacked.shape[1:], dtype=torch.bool)
    if stacked.is_complex():
        return strewn(list(stacked.real)) & strewn(list(stacked.imag))
    ordered = stacked.sort(0).values
    gaps, extent = ordered.diff(dim=0).amax(0), ordered[-1] - ordered[0]
    return (gaps <= extent / 2) & (extent > 0) & torch.isfinite(extent)


def loose(actual: Tensor, runs: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Where nearly every run of the rounding model gives a number of its own, and this one is beside one of them.

    So it is of the direction of a vector that rounding alone decides, however unevenly rounding strews it. What lies in
    the gap between two sides of a jump is beside neither. Of complex numbers both parts are. Few runs tell nothing.
    """
    stacked = torch.stack(runs)
    if len(runs) < 8:
        return torch.zeros(actual.shape, dtype=torch.bool)
    if actual.is_complex():
        parts = ([part(one) for one in (actual, *runs)] for part in (torch.real, torch.imag))
        return torch.stack([loose(one, others, dtype) for one, *others in parts]).all(0)
    ordered = stacked.sort(0).values
    gaps, extent = ordered.diff(dim=0), ordered[-1] - ordered[0]
    own = (gaps > extent * 2.0 ** -(precision(dtype) // 2)).sum(0) >= OF_ITS_OWN * len(gaps)
    return own & ((stacked - actual).abs().amin(0) <= BESIDE * extent) & torch.isfinite(extent)


def between(actual: Tensor, runs: list[Tensor]) -> Tensor:
    """Where the number lies between the runs', of complex numbers both parts."""
    if actual.is_complex():
        parts = ([part(one) for one in (actual, *runs)] for part in (torch.real, torch.imag))
        return torch.stack([between(one, others) for one, *others in parts]).all(0)
    stacked = torch.stack(runs)
    return (stacked.amin(0) <= actual) & (actual <= stacked.amax(0))


def steep(moved: list[Tensor], barely: list[Tensor]) -> Tensor:
    """Where inputs moved by one ULP move a number as far as its slope says, however far that is.

    ``barely`` are runs whose inputs moved by ``TINY_STEP`` of that, which tell the slope. A jump moves a number as far
    by the smallest step as by a large one, or not at all by the smallest. The first of each are those not moved.
    """
    far, slope = (torch.stack([(run - runs[0]).abs() for run in runs[1:]]).amax(0) for runs in (moved, barely))
    slope = slope / TINY_STEP
    return torch.isfinite(far) & (far <= LINEAR * slope) & (far >= slope / LINEAR)


def within(values: Tensor, centre: Tensor, room: Tensor) -> Tensor:
    """Where numbers are finite and no further than ``room`` from ``centre``."""
    return torch.isfinite(values) & (torch.abs(values - centre) <= room)


def among(actual: Tensor, runs: list[Tensor], dtype: torch.dtype, row: Tolerance) -> Tensor:
    """Where the backend's number is one that some run gave, or lies between two runs that are close together.

    Close is half the digits of the runs' largest finite value at that element: across a wider gap the function jumps,
    and nothing between its two sides is an answer. Of complex numbers, which have no order, all runs have to be close.
    """
    found = torch.zeros(actual.shape, dtype=torch.bool)
    for run in runs:
        found |= near(actual, run, dtype, row.ulps, row.tiny)
    stacked = torch.stack(runs)
    largest = torch.where(torch.isfinite(stacked), stacked.abs(), 0.0).amax(0)
    close = 2.0 ** (precision(dtype) // 2) * ulp(largest, dtype)
    if actual.is_complex():
        radius = (stacked - runs[0]).abs().amax(0)
        return found | ((torch.abs(actual - runs[0]) <= radius) & (radius <= close))
    ordered = stacked.sort(0).values
    inside = (ordered[:-1] <= actual) & (actual <= ordered[1:])
    return found | (inside & (ordered.diff(dim=0) <= close)).any(0)
