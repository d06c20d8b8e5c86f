"""The float64 reference of one leaf, and how much room rounding has around it."""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.conformance.oracle.context import Context
from torchstone.conformance.oracle.elementwise import Reference
from torchstone.conformance.oracle.reference.runs import CALM
from torchstone.conformance.oracle.reference.scipy_reference import second_opinion
from torchstone.conformance.oracle.tolerances import STRAYING


def truth_of(expected: Tensor, context: Context) -> tuple[Reference | None, str]:
    """The float64 run's values, no room for rounding around them yet; or why there are none."""
    run = context.referee.float64
    if run.problem:
        return None, f"no float64 run: {run.problem}"
    values = context.other(run, expected)
    if values is None:
        return None, "the float64 run gives another shape or kind of result"
    return Reference(values, torch.zeros(values.shape, dtype=torch.float64)), ""


def strayed(truth: Reference, expected: Tensor, context: Context) -> Reference:
    """The reference with the spread of the rounding model; for many a case its values alone settle all."""
    return Reference(truth.values, spread_of(truth.values, context.others(context.referee.noisy, expected)))


def second(truth: Reference, context: Context) -> Reference | None:
    """The reference by SciPy's values, of the first and only output of a special function."""
    if context.index:
        return None
    values = second_opinion(context.referee.program, context.referee.args(), truth.values)
    return None if values is None else Reference(values, truth.spread, truth.smooth)


def spread_of(values: Tensor, runs: list[Tensor]) -> Tensor:
    """How far the runs stray from the values, element by element; what is not finite in either strays nowhere."""
    spread = torch.zeros(values.shape, dtype=torch.float64)
    for run in runs:
        spread = torch.maximum(spread, torch.abs(run - values).nan_to_num(0.0, 0.0, 0.0))
    return spread


def surer(truth: Reference, expected: Tensor, context: Context) -> Reference:
    """The reference with the spread of more runs where it is smooth: of many elements, some stray little in all of the
    first few. A jump that only the later runs meet is not let in: it would stray further by far."""
    smooth = _smooth(truth, expected, context)
    more = spread_of(truth.values, context.others(context.referee.more_noisy, expected))
    spread = torch.where(
        smooth, torch.maximum(truth.spread, torch.minimum(more, STRAYING * truth.spread)), truth.spread
    )
    return Reference(truth.values, spread, smooth)


def _smooth(truth: Reference, expected: Tensor, context: Context) -> Tensor:
    calm = spread_of(truth.values, context.others(context.referee.calm, expected)) / CALM
    return (calm > 0.5 * truth.spread) & (calm < 2.0 * truth.spread)
