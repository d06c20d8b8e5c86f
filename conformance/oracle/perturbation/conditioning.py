"""The numbers that rounding, the last bit of the inputs or the order of the steps decides between: ill-conditioned.

Each function tells, element by element, where the backend's number is one of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchstone.conformance.oracle.elementwise import (
    Reference,
    is_continuous_spread,
    within_distance,
    within_ulps,
)
from torchstone.conformance.oracle.perturbation.search import attained, between_runs
from torchstone.conformance.oracle.reference.leaf import Effort, Leaf, amplified_spread, beside_a_pole, spread_of
from torchstone.conformance.oracle.tolerances import (
    AMPLIFICATION_FACTOR,
    NO_REFERENCE_FACTOR,
    SPREAD_FACTOR,
    Tolerance,
    real_dtype,
)
from torchstone.conformance.oracle.ulp import wide


def ill_conditioned(
    actual: Tensor,
    expected: Tensor,
    truth: Reference | None,
    bad: Tensor,
    dtype: torch.dtype,
    row: Tolerance,
    leaf: Leaf,
) -> Tensor:
    """Where the backend's number is one of those that rounding, or the last bit of the inputs, decides between."""
    referee = leaf.referee
    like = torch.empty(expected.shape, dtype=dtype)
    on_edge = torch.zeros(expected.shape, dtype=torch.bool)
    found = _given(actual, leaf.others(referee.flushed_runs, like), dtype, row)
    if truth is not None:
        rounded = leaf.others(referee.rounded_runs, like)
        found |= _given(actual, [truth.values, *rounded], dtype, row)
    if not referee.all_exact and bool((bad & ~found).any()):
        if truth is not None:
            on_edge = _given(actual, leaf.others(referee.sub_ulp_perturbed, like), dtype, row)
        found |= ~on_edge & _given(actual, leaf.others(referee.ulp_perturbed, like), dtype, row)
    if leaf.effort >= Effort.SEARCH and bool((bad & ~found).any()):
        found |= _given(actual, leaf.others(referee.relaid_runs, like), dtype, row)
    if truth is None:
        return found
    if bool((bad & ~found).any()):
        found |= bad & beside_a_pole(actual, truth, expected, leaf)
    if real_dtype(dtype) is torch.float64:  # beside the end of its range runs overflow by what moves them
        sizes = torch.maximum(*(torch.where(torch.isfinite(t), t.abs(), 0.0) for t in (actual, expected)))
        bad = bad & (sizes < torch.finfo(torch.float64).max / 2)
        found &= bad
        if bool((bad & ~found).any()):
            room = SPREAD_FACTOR * amplified_spread(truth, like, leaf)
            found |= bad & within_distance(actual, truth.values, room)
    for runs, where in ((referee.runs_on_grid, ~on_edge), (referee.roundings_on_grid, on_edge)):
        if bool((left := bad & ~found & where).any()):
            found |= where & _given(actual, _in_range(leaf.each(runs, like), truth.values, dtype), dtype, row, left)
    if leaf.effort < Effort.SEARCH:
        return found
    if real_dtype(dtype) is torch.float64 and bool((left := bad & ~found).any()):
        # What cancels leaves a few units, and inputs that are moved leave none of those that roundings do.
        found |= between_runs(actual, left, leaf, referee.roundings_scattered, dtype, row)
    for scatter, where in ((referee.inputs_scattered, ~on_edge), (referee.roundings_scattered, on_edge)):
        left = bad & ~found & where
        if bool(left.any()):
            found |= attained(actual, left, leaf, scatter, dtype, row)
    return found


def _in_range(runs: Iterable[Tensor], truth: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """The runs with infinities for what is beyond the dtype's range, beside a pole: float64's number is well within it
    there, so that none was moved over its end."""
    for run in runs:
        if dtype.is_floating_point:
            largest = torch.finfo(dtype).max
            run = torch.where((truth.abs() < largest / 2) & (run.abs() > largest), run * torch.inf, run)
        yield run


def _given(
    actual: Tensor, runs: Iterable[Tensor], dtype: torch.dtype, row: Tolerance, wanted: Tensor | None = None
) -> Tensor:
    """Where some run gives the backend's number; no more runs are asked once all that are ``wanted`` are given."""
    found = torch.zeros(actual.shape, dtype=torch.bool)
    for run in runs:
        found |= within_ulps(actual, run, dtype, row.ulps, row.tiny)
        if wanted is not None and not bool((wanted & ~found).any()):
            break
    return found


def rounding_reaches(expected: Tensor, truth: Reference, leaf: Leaf) -> Tensor:
    """Where rounding, or the last bit of the inputs, takes a result half as far from float64 as eager's is, or further.

    There it is rounding that eager's error comes from, and a number between the two may lie on neither side of a jump.
    Elsewhere eager has few digits of its own, and a number nearer to float64 is better than eager's. How far rounding
    takes it is measured from eager's own formula: SciPy's value may be as far from every run of it.
    """
    own = leaf.other(leaf.referee.float64, expected)
    formula = truth if own is None else replace(truth, values=own)
    rounded = spread_of(formula.values, leaf.others(leaf.referee.rounded_runs, expected))
    return torch.maximum(rounded, strays(expected, formula, leaf)) >= (expected - truth.values).abs() / 2


def strays(expected: Tensor, truth: Reference, leaf: Leaf) -> Tensor:
    """How far from float64's the last bit of the inputs takes a result, in the first runs of a search."""
    return spread_of(truth.values, leaf.others([run for _, run in leaf.referee.inputs_scattered.first], expected))


def overflow_order(
    actual: Tensor,
    expected: Tensor,
    bad: Tensor,
    dtype: torch.dtype,
    row: Tolerance,
    leaf: Leaf,
) -> Tensor:
    """Where the order of the steps decides what overflows, and the backend's number is one that some order gives.

    Where eager's is finite, only orders of additions and factors count, and of the steps of a mean, a variance and what
    is normalized by them: any other step that overflows is the backend's doing. Where eager's is not finite, any step
    may overflow as it does in the dtype, or none by another formula, and no other number is right for it.
    """
    like = torch.empty(expected.shape, dtype=dtype)
    found = torch.zeros(actual.shape, dtype=torch.bool)
    kept, gone = torch.isfinite(expected), ~torch.isfinite(expected)
    for run in leaf.each(leaf.referee.overflowed_runs, like) if bool((bad & gone).any()) else []:
        found |= gone & within_ulps(actual, wide(run.to(dtype)), dtype, row.ulps, row.tiny)
        if not bool((bad & gone & ~found).any()):
            break
    for run in leaf.each(leaf.referee.reordered_runs, like) if bool((bad & ~found).any()) else []:
        found |= within_ulps(actual, torch.where(kept, run, wide(run.to(dtype))), dtype, row.ulps, row.tiny)
        if not bool((bad & ~found).any()):
            break
    if real_dtype(dtype) is torch.float64 and bool((bad & ~found & torch.isfinite(actual)).any()):
        found |= _left_by_cancellation(actual, bad & ~found, like, leaf)
    return found


def _left_by_cancellation(actual: Tensor, bad: Tensor, like: Tensor, leaf: Leaf) -> Tensor:
    """Where float64 numbers that cancel may leave the backend's: as near as runs stray that are spread without a gap.

    Those of each formula are by themselves. Of few runs one element in a hundred has a gap by chance, and more have to
    tell.
    """
    found = torch.zeros_like(bad)
    for formula, some in leaf.referee.cancelled_runs.items():
        if not (runs := leaf.others(some, like)):
            continue
        near = within_distance(actual, runs[0], AMPLIFICATION_FACTOR * spread_of(runs[0], runs))
        found |= near & is_continuous_spread(runs)
        if bool((bad & near & ~found).any()):
            more = leaf.others(leaf.referee.more_cancelled_runs.get(formula, []), like)
            found |= near & is_continuous_spread(runs + more)
    return found


def nan_of_a_kernel(actual: Tensor, expected: Tensor, dtype: torch.dtype, row: Tolerance, leaf: Leaf) -> Tensor:
    """Where the documented formula gives the backend's NaN, which eager's kernel loses, or the backend's number, for
    which eager's kernel makes a NaN."""
    lost, made = torch.isnan(actual) & ~torch.isnan(expected), torch.isnan(expected) & ~torch.isnan(actual)
    if not bool((lost | made).any()):
        return lost
    run = leaf.other(leaf.referee.by_formulas, torch.empty(expected.shape, dtype=dtype))
    if run is None:
        return torch.zeros_like(lost)
    return (lost & torch.isnan(run)) | (
        made & within_ulps(actual, run, dtype, NO_REFERENCE_FACTOR * row.ulps, row.tiny)
    )
