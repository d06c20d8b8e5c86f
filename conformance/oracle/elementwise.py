"""Element by element: which of the backend's numbers are right, given eager's and, when there is one, float64's.

Nothing here averages or sums over elements; every tensor of booleans has one entry for each number judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.oracle.tolerances import (
    MAX_EAGER_ERROR_TO_SPREAD,
    MAX_ERROR_TO_EAGER_ERROR,
    MAX_SPREAD_GROWTH,
    SPREAD_FACTOR,
    Tolerance,
    tolerance,
)
from torchstone.conformance.oracle.ulp import precision, ulp, wide


@dataclass(frozen=True)
class Reference:
    """What the float64 run says of one result: its values, and the spread of the rounding model around them."""

    values: Tensor
    spread: Tensor
    smooth: Tensor | None = None
    """Where the spread is proportional to the size of the roundings, which no jump is."""
    eager_nearby: Tensor | None = None
    """How far from float64 eager is on inputs a few ULPs away, at most: its error on the inputs themselves is luck."""
    measured: bool = True
    """Whether the spread is known. Where it is not, eager's error may be a jump, and gives no room."""
    rounded_to: torch.dtype | None = None
    """The narrowest dtype that steps on the way round to, where that is narrower than the results' own."""

    def coarsest(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the largest rounding unit on the way to results of ``dtype``."""
        return dtype if self.rounded_to is None or precision(dtype) <= precision(self.rounded_to) else self.rounded_to


def within_ulps(actual: Tensor, expected: Tensor, dtype: torch.dtype, ulps: float, tiny: float) -> Tensor:
    """The same-dtype comparison, on float64 or complex128 copies: equal, or finite and within ``ulps`` of expected.

    Of complex numbers that are both not finite the parts are compared, each by its own ULPs; for NaN see
    ``equality.same_numbers``.
    """
    finite = torch.isfinite(actual) & torch.isfinite(expected)
    distance = torch.abs(actual - expected)
    found = same_numbers(actual, expected) | (finite & (distance <= ulps * ulp(expected.abs(), dtype) + tiny))
    if actual.is_complex():
        a, b = torch.view_as_real(actual), torch.view_as_real(expected)
        parts = within_ulps(a, b, dtype, ulps, tiny) | torch.isnan(a) | torch.isnan(b)
        found |= ~torch.isfinite(actual) & ~torch.isfinite(expected) & parts.all(-1)
    return found


def error_bound(expected: Tensor, reference: Reference, dtype: torch.dtype, row: Tolerance) -> Tensor:
    """How far from float64 the backend's numbers may be where eager's are finite: see ``within_reference``."""
    truth, spread = reference.values, reference.spread
    bound = row.ulps * ulp(truth.abs(), dtype) + row.tiny
    if not reference.measured:
        return bound
    eager_error = torch.where(torch.isfinite(expected), torch.abs(expected - truth), 0.0)
    explicable = MAX_EAGER_ERROR_TO_SPREAD * (spread + bound)
    explained = eager_error <= explicable
    coarsest = reference.coarsest(dtype)
    room = SPREAD_FACTOR * spread
    if coarsest is not dtype:  # the ULPs of a step before are counted by what becomes of one
        room = max(SPREAD_FACTOR, tolerance(coarsest).ulps) * spread
    if reference.eager_nearby is not None:
        typical = explained & (reference.eager_nearby <= explicable)
        eager_error = torch.where(typical, torch.maximum(eager_error, reference.eager_nearby), eager_error)
    slack = torch.where(explained, room + row.factor * eager_error, MAX_ERROR_TO_EAGER_ERROR * eager_error)
    most = 2.0 ** (precision(coarsest) // 2) * ulp(truth.abs(), coarsest)
    slack = torch.where(explained & (room > most), 0.0, slack.minimum(most))
    if reference.smooth is not None:
        # Further than that, eager has met a jump that the runs have not, and what lies between is on neither side.
        typical = torch.where(eager_error <= MAX_SPREAD_GROWTH * room, eager_error.minimum(room), 0.0)
        slack = torch.where(reference.smooth, torch.maximum(slack, room + row.factor * typical), slack)
    return bound + slack


def within_reference(
    actual: Tensor, expected: Tensor, reference: Reference, dtype: torch.dtype, row: Tolerance
) -> Tensor:
    """Where float64 absolves the backend: it is no further from the truth than eager is, within factor and bound.

    All tensors are float64 or complex128, of one shape; ``dtype`` is what the results really had.

    - Eager finite: the backend must be finite, or infinite where float64 lies beyond the range, and
      ``|backend - f64| <= ulps * ulp(f64) + factor * |eager - f64| + SPREAD_FACTOR * spread``. Where the rounding model
      does not explain eager's error, the factor is ``MAX_ERROR_TO_EAGER_ERROR``, hardly above 1: the two runs may
      compute different things there (a limit taken from the dtype, a branch gone the other way). What exceeds the ULPs
      is capped at half the digits of the number, so that no jump, however explained, is a pass, and is nothing where
      the spread takes more: there is a jump, and what lies beside it is on neither side. Where the spread is known to
      be smooth it has no such cap, because terms may cancel entirely.
    - Eager overflowed or gave NaN on the way: the backend must be within the ULPs and the spread of float64, or be
      float64 rounded to the dtype, or have overflowed where those ULPs do.
    """
    truth = reference.values
    bound = row.ulps * ulp(truth.abs(), dtype) + row.tiny
    finite = torch.isfinite(truth)
    within = (
        torch.isfinite(actual) & finite & (torch.abs(actual - truth) <= error_bound(expected, reference, dtype, row))
    )
    rounded = same_numbers(wide(truth.to(dtype)), actual) & is_number(truth)
    over = finite & same_numbers(wide((truth + torch.sgn(truth) * bound).to(dtype)), actual) & ~torch.isfinite(actual)
    lost = (within & representable_range(truth, dtype)) | rounded | over
    overflowed = rounded & finite & ~torch.isfinite(actual)
    return torch.where(torch.isfinite(expected), within | overflowed, lost)


def is_number(values: Tensor) -> Tensor:
    """Where float64 gives what may be rounded to another dtype: not a limit that it takes from float64's range."""
    return values.abs() != torch.finfo(torch.float64).max


def no_further_than_eager(actual: Tensor, expected: Tensor, truth: Tensor) -> Tensor:
    """Where a number is as near to float64's as eager's, hardly further, all three finite."""
    finite = torch.isfinite(actual) & torch.isfinite(expected) & torch.isfinite(truth)
    return finite & (torch.abs(actual - truth) <= MAX_ERROR_TO_EAGER_ERROR * torch.abs(expected - truth))


def representable_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Where a float64 value does not overflow ``dtype``."""
    return torch.isfinite(wide(values.to(dtype)))


def is_continuous_spread(runs: list[Tensor]) -> Tensor:
    """Where runs of the rounding model are spread over their range without a gap.

    A jump leaves a gap between its two sides, wider than half the range; where rounding is amplified by steps that are
    continuous there is none, however far the runs stray. Of complex numbers both parts are. Few runs tell nothing.
    """
    stacked = torch.stack(runs)
    if len(runs) < 8:
        return torch.zeros(stacked.shape[1:], dtype=torch.bool)
    if stacked.is_complex():
        return is_continuous_spread(list(stacked.real)) & is_continuous_spread(list(stacked.imag))
    ordered = stacked.sort(0).values
    gaps, extent = ordered.diff(dim=0).amax(0), ordered[-1] - ordered[0]
    return (gaps <= extent / 2) & (extent > 0) & torch.isfinite(extent)


def within_distance(values: Tensor, centre: Tensor, room: Tensor) -> Tensor:
    """Where numbers are finite and no further than ``room`` from ``centre``."""
    return torch.isfinite(values) & (torch.abs(values - centre) <= room)
