"""The numbers that rounding, the last bit of the inputs or the order of the steps decides between: ill-conditioned.

Each function tells, element by element, where the backend's number is one of those.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.conformance.oracle.context import Context
from torchstone.conformance.oracle.elementwise import Reference, among, between, loose, near, steep, strewn, within
from torchstone.conformance.oracle.reference.spread import spread_of
from torchstone.conformance.oracle.tolerances import AMPLIFIED, Tolerance, real_dtype
from torchstone.conformance.oracle.ulp import wide


def conditioned(
    actual: Tensor, expected: Tensor, truth: Reference | None, dtype: torch.dtype, row: Tolerance, context: Context
) -> Tensor:
    """Where the backend's number is one of those that rounding, or the last bit of the inputs, decides between."""
    referee = context.referee
    like = torch.empty(expected.shape, dtype=dtype)
    none = torch.zeros(expected.shape, dtype=torch.bool)
    rounded = none
    if truth is not None:
        noisy = context.others(referee.noisy + referee.wild, like)
        rounded = among(actual, [truth.values, *noisy], dtype, row) if noisy else none
    if referee.all_exact:
        return rounded
    moved = context.others(referee.moved, like)
    if not moved:
        return rounded
    near_by = among(actual, [expected, *moved], dtype, row)
    barely = context.others(referee.barely_moved, like) if truth is not None else []
    if truth is not None and barely:
        near_by |= steep([expected, *moved], [truth.values, *barely]) & between(actual, [expected, *moved])
    on_edge = none
    for run in barely:
        on_edge = on_edge | near(actual, run, dtype, row.ulps, row.tiny)
    if truth is not None:
        on_edge &= ~near(actual, truth.values, dtype, row.ulps, row.tiny)
    return rounded | (near_by & ~on_edge)


def overflowed(
    actual: Tensor, expected: Tensor, bad: Tensor, dtype: torch.dtype, row: Tolerance, context: Context
) -> Tensor:
    """Where the order of the steps decides what overflows, and the backend's number is one that some order gives.

    Where eager's is finite, only orders of additions and factors count, and of the steps of a mean, a variance and what
    is normalized by them: any other step that overflows is the backend's doing.
    """
    like = torch.empty(expected.shape, dtype=dtype)
    found = torch.zeros(actual.shape, dtype=torch.bool)
    kept, gone = torch.isfinite(expected), ~torch.isfinite(expected)
    for run in context.others(context.referee.reordered, like) if bool((bad & kept).any()) else []:
        found |= kept & near(actual, run, dtype, row.ulps, row.tiny)
    for run in context.others(context.referee.overflowed, like) if bool((bad & gone).any()) else []:
        found |= gone & near(actual, wide(run.to(dtype)), dtype, row.ulps, row.tiny)
    if real_dtype(dtype) is torch.float64 and bool((bad & gone & ~found & torch.isfinite(actual)).any()):
        runs = context.others(context.referee.cancelled, like)
        found |= gone & strewn(runs) & within(actual, runs[0], AMPLIFIED * spread_of(runs[0], runs)) if runs else False
    return found


def amplified(actual: Tensor, expected: Tensor, truth: Reference, dtype: torch.dtype, context: Context) -> Tensor:
    """Where a number, like eager's, strays from float64 hardly more than rounding does, beyond half the digits.

    So it is where continuous steps amplify what they are given: a batch norm over few numbers of few bits, again and
    again. A jump is no such thing: its runs lie on its two sides. Each element is looked at for itself. Eager's
    infinity is any number beyond the range: what it divides by may be no more than rounding.
    """
    like = torch.empty(expected.shape, dtype=torch.complex128 if expected.is_complex() else torch.float64)
    runs = context.others(context.referee.noisy + context.referee.more_noisy, like)
    room = AMPLIFIED * spread_of(truth.values, runs)
    over = torch.zeros(expected.shape, dtype=torch.bool)
    if not expected.is_complex():
        over = torch.isinf(expected) & (torch.sgn(expected) * truth.values + room > torch.finfo(dtype).max)
    near_by = within(actual, truth.values, room) & (within(expected, truth.values, room) | over)
    runs = [truth.values, *runs]
    return (strewn(runs) | loose(actual, runs, dtype)) & near_by


def undefined(actual: Tensor, expected: Tensor, dtype: torch.dtype, context: Context) -> Tensor:
    """Where the backend's NaN is what the documented formula gives, and eager's kernel loses it."""
    lost = torch.isnan(actual) & ~torch.isnan(expected)
    if not bool(lost.any()):
        return lost
    run = context.other(context.referee.formulas, torch.empty(expected.shape, dtype=dtype))
    return torch.zeros_like(lost) if run is None else lost & torch.isnan(run)
