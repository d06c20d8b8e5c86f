"""The numbers that rounding, the last bit of the inputs or the order of the steps decides between: ill-conditioned.

Each function tells, element by element, where the backend's number is one of those.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.conformance.oracle.elementwise import (
    Reference,
    in_range_of_runs,
    in_sample_hull,
    is_continuous_spread,
    is_isolated_samples,
    is_locally_linear,
    within_distance,
    within_ulps,
)
from torchstone.conformance.oracle.reference.leaf import Leaf, spread_of
from torchstone.conformance.oracle.tolerances import AMPLIFICATION_FACTOR, Tolerance, real_dtype
from torchstone.conformance.oracle.ulp import wide


def ill_conditioned(
    actual: Tensor, expected: Tensor, truth: Reference | None, dtype: torch.dtype, row: Tolerance, leaf: Leaf
) -> Tensor:
    """Where the backend's number is one of those that rounding, or the last bit of the inputs, decides between."""
    referee = leaf.referee
    like = torch.empty(expected.shape, dtype=dtype)
    none = torch.zeros(expected.shape, dtype=torch.bool)
    rounded = none
    if truth is not None:
        rounded_runs = leaf.others(referee.rounded_runs + referee.amplified_runs, like)
        rounded = in_sample_hull(actual, [truth.values, *rounded_runs], dtype, row) if rounded_runs else none
    if referee.all_exact:
        return rounded
    perturbed = leaf.others(referee.ulp_perturbed, like)
    if not perturbed:
        return rounded
    near_by = in_sample_hull(actual, [expected, *perturbed], dtype, row)
    slightly = leaf.others(referee.sub_ulp_perturbed, like) if truth is not None else []
    if truth is not None and slightly:
        near_by |= is_locally_linear([expected, *perturbed], [truth.values, *slightly]) & in_range_of_runs(
            actual, [expected, *perturbed]
        )
    on_edge = none
    for run in slightly:
        on_edge = on_edge | within_ulps(actual, run, dtype, row.ulps, row.tiny)
    if truth is not None:
        on_edge &= ~within_ulps(actual, truth.values, dtype, row.ulps, row.tiny)
    return rounded | (near_by & ~on_edge)


def overflow_order(
    actual: Tensor, expected: Tensor, bad: Tensor, dtype: torch.dtype, row: Tolerance, leaf: Leaf
) -> Tensor:
    """Where the order of the steps decides what overflows, and the backend's number is one that some order gives.

    Where eager's is finite, only orders of additions and factors count, and of the steps of a mean, a variance and what
    is normalized by them: any other step that overflows is the backend's doing.
    """
    like = torch.empty(expected.shape, dtype=dtype)
    found = torch.zeros(actual.shape, dtype=torch.bool)
    kept, gone = torch.isfinite(expected), ~torch.isfinite(expected)
    for run in leaf.others(leaf.referee.reordered_runs, like) if bool((bad & kept).any()) else []:
        found |= kept & within_ulps(actual, run, dtype, row.ulps, row.tiny)
    for run in leaf.others(leaf.referee.overflowed_runs, like) if bool((bad & gone).any()) else []:
        found |= gone & within_ulps(actual, wide(run.to(dtype)), dtype, row.ulps, row.tiny)
    if real_dtype(dtype) is torch.float64 and bool((bad & gone & ~found & torch.isfinite(actual)).any()):
        runs = leaf.others(leaf.referee.cancelled_runs, like)
        found |= (
            gone
            & is_continuous_spread(runs)
            & within_distance(actual, runs[0], AMPLIFICATION_FACTOR * spread_of(runs[0], runs))
            if runs
            else False
        )
    return found


def error_amplification(actual: Tensor, expected: Tensor, truth: Reference, dtype: torch.dtype, leaf: Leaf) -> Tensor:
    """Where a number, like eager's, strays from float64 hardly more than rounding does, beyond half the digits.

    So it is where continuous steps amplify what they are given: a batch norm over few numbers of few bits, again and
    again. A jump is no such thing: its runs lie on its two sides. Each element is looked at for itself. Eager's
    infinity is any number beyond the range: what it divides by may be no more than rounding.
    """
    like = torch.empty(expected.shape, dtype=torch.complex128 if expected.is_complex() else torch.float64)
    runs = leaf.others(leaf.referee.rounded_runs + leaf.referee.more_rounded_runs, like)
    room = AMPLIFICATION_FACTOR * spread_of(truth.values, runs)
    over = torch.zeros(expected.shape, dtype=torch.bool)
    if not expected.is_complex():
        over = torch.isinf(expected) & (torch.sgn(expected) * truth.values + room > torch.finfo(dtype).max)
    near_by = within_distance(actual, truth.values, room) & (within_distance(expected, truth.values, room) | over)
    runs = [truth.values, *runs]
    return (is_continuous_spread(runs) | is_isolated_samples(actual, runs, dtype)) & near_by


def nan_lost_by_eager(actual: Tensor, expected: Tensor, dtype: torch.dtype, leaf: Leaf) -> Tensor:
    """Where the backend's NaN is what the documented formula gives, and eager's kernel loses it."""
    lost = torch.isnan(actual) & ~torch.isnan(expected)
    if not bool(lost.any()):
        return lost
    run = leaf.other(leaf.referee.by_formulas, torch.empty(expected.shape, dtype=dtype))
    return torch.zeros_like(lost) if run is None else lost & torch.isnan(run)
