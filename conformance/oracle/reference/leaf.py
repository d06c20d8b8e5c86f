"""One leaf of the results in every run: which it is, its float64 reference, and the room that rounding has."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchstone.conformance.oracle.elementwise import Reference, within_distance
from torchstone.conformance.oracle.evidence import inexact
from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.reference.runs import AMPLIFIED_SCALES, Referee, ReferenceRun
from torchstone.conformance.oracle.reference.without_float64 import saturated
from torchstone.conformance.oracle.tolerances import MAX_BEND, MAX_SPREAD_GROWTH, SPREAD_FACTOR
from torchstone.conformance.oracle.ulp import precision, ulp, wide

NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtype of the tensor that a number of the results may be read out of."""


DAMPED_SCALE = 1 / 16
"""How much smaller than the others the roundings are that tell the slope."""


class Effort(enum.IntEnum):
    """How much is asked about a number that is in doubt."""

    FEW_RUNS = 0
    """float64 and a few runs of the rounding model."""
    ALL_RUNS = 1
    """Every kind of run that there is: some hundreds."""
    SEARCH = 2
    """A run that gives the number is searched for, which takes as long as all else."""
    LONG_SEARCH = 3
    """As many runs as tell what the search left open: some thousands."""


@dataclass(frozen=True)
class Leaf:
    """One leaf of a program's results, with the runs that can be asked about it."""

    referee: Referee
    index: int
    targets: list[str]
    strict: bool = False
    dtype: torch.dtype | None = None
    """Of numbers that are no tensors: what they were read out of."""
    effort: Effort = Effort.LONG_SEARCH
    parts: bool = False
    """Whether complex numbers count as two real ones, in a last dim."""

    def dtype_of(self, tensor: Tensor) -> torch.dtype:
        """The dtype whose ULPs count."""
        return self.dtype or tensor.dtype

    def rounded_to(self, tensor: Tensor) -> torch.dtype:
        """The dtype whose ULPs count where there is no float64 run: what a step has rounded to, if that is narrower."""
        own, rounded = self.dtype_of(tensor), self.referee.leaf_dtype(self.index)
        return own if rounded is None or precision(own) <= precision(rounded) else rounded

    def other(self, run: ReferenceRun, like: Tensor) -> Tensor | None:
        """This leaf in another run, widened, if it is a tensor of the same shape and of the same kind of number."""
        if self.index >= len(run.leaves):
            return None
        value = run.leaves[self.index]
        value = torch.tensor(value, dtype=NUMBERS[type(value)]) if type(value) in NUMBERS else value
        if not isinstance(value, Tensor):
            return None
        value = dense(value)
        if self.parts and value.dtype.is_complex:
            value = torch.view_as_real(value.resolve_conj())
        if value.shape != like.shape or value.dtype.is_complex != like.dtype.is_complex:
            return None
        if value.dtype.is_floating_point != like.dtype.is_floating_point:
            return None
        return wide(value) if inexact(like) else value

    def each(self, runs: Iterable[ReferenceRun], like: Tensor) -> Iterator[Tensor]:
        """This leaf in other runs, where there is one like it; a run is made when its turn comes."""
        return (value for run in runs if (value := self.other(run, like)) is not None)

    def others(self, runs: Iterable[ReferenceRun], like: Tensor) -> list[Tensor]:
        """This leaf in all of other runs, where there is one like it."""
        return list(self.each(runs, like))


def reference_of(expected: Tensor, leaf: Leaf) -> tuple[Reference | None, str]:
    """The float64 run's values, no room for rounding around them yet; or why there are none."""
    run = leaf.referee.float64
    if run.problem:
        return None, f"no float64 run: {run.problem}"
    values = leaf.other(run, expected)
    if values is None:
        return None, "the float64 run gives another shape or kind of result"
    computed = run.leaves[leaf.index]
    if isinstance(computed, Tensor) and inexact(computed) and precision(computed.dtype) < precision(torch.float64):
        return None, f"the float64 run computes in {computed.dtype}"  # a function of PyTorch's asks for no more
    return (
        Reference(
            saturated(values, leaf.dtype_of(expected)),
            torch.zeros(values.shape, dtype=torch.float64),
            measured=False,
            rounded_to=leaf.referee.leaf_dtype(leaf.index),
        ),
        "",
    )


def with_spread(truth: Reference, expected: Tensor, leaf: Leaf) -> Reference:
    """The reference with the spread of the rounding model; for many a case its values alone settle all."""
    spread = spread_of(truth.values, leaf.others(leaf.referee.rounded_runs, expected))
    return replace(truth, spread=spread, measured=True)


def scipy_reference(truth: Reference, expected: Tensor, leaf: Leaf) -> Reference | None:
    """The reference by the float64 run with SciPy's values; None where that is no other. The spread is one of eager's
    formulas, and says nothing of others."""
    values = leaf.other(leaf.referee.by_scipy, expected)
    if values is None:
        return None
    values = saturated(values, leaf.dtype_of(expected))
    return replace(truth, values=values, spread=torch.zeros_like(truth.spread), smooth=None)


def spread_of(values: Tensor, runs: list[Tensor]) -> Tensor:
    """How far the runs stray from the values, element by element; what is not finite in either strays nowhere."""
    spread = torch.zeros(values.shape, dtype=torch.float64)
    for run in runs:
        spread = torch.maximum(spread, torch.abs(run - values).nan_to_num(0.0, 0.0, 0.0))
    return spread


def refine_spread(truth: Reference, expected: Tensor, bad: Tensor, leaf: Leaf) -> Reference:
    """The reference with the spread of more runs where it is smooth: of many elements, some stray little in all of the
    first few. A jump that only some later runs meet is not let in: they would stray further by far than most do. Nor
    is one that most of them meet: in order of how far they stray, it leaves a gap. There is room as far as one of
    them strays, and no further: that results are smooth is known as far as the first few have room.

    ``bad`` are the elements that it is for: where none of them is smooth, no more runs are made."""
    smooth = _smooth(truth, expected, leaf)
    if not bool((smooth & bad).any()):
        return replace(truth, smooth=smooth)
    strays = [spread_of(truth.values, [run]) for run in leaf.others(leaf.referee.more_rounded_runs, expected)]
    if not strays:
        return replace(truth, smooth=smooth)
    ordered, spread = torch.stack(strays).sort(0).values, truth.spread
    most = ordered[(len(strays) - 1) // 2].maximum(MAX_SPREAD_GROWTH * spread)
    for stray in ordered:
        near = smooth & (stray <= most) & (stray <= MAX_SPREAD_GROWTH * spread)
        spread = torch.where(near, spread.maximum(stray), spread)
    return replace(truth, spread=truth.spread.maximum(spread / SPREAD_FACTOR), smooth=smooth)


def eager_nearby(truth: Reference, expected: Tensor, dtype: torch.dtype, leaf: Leaf) -> Reference:
    """The reference with eager's errors on inputs a few ULPs away, where rounding moves results in proportion or not at
    all: there eager's own error is a number that rounding draws, and may happen to be nothing. Not of 16-bit numbers:
    eager computes in float32, and rounds once."""
    if precision(dtype) < precision(torch.float32):
        return truth
    steady = truth.spread <= ulp(truth.values.abs(), dtype)
    steady = steady if truth.smooth is None else steady | truth.smooth
    largest = torch.zeros(truth.values.shape, dtype=torch.float64)
    for eager, exact in leaf.referee.runs_nearby:
        pair = [leaf.other(run, expected) for run in (eager, exact)]
        if pair[0] is not None and pair[1] is not None:
            largest = torch.maximum(largest, torch.abs(pair[0] - pair[1]).nan_to_num(0.0, 0.0, 0.0))
    return replace(truth, eager_nearby=torch.where(steady, largest, 0.0))


def beside_a_pole(actual: Tensor, truth: Reference, expected: Tensor, leaf: Leaf) -> Tensor:
    """Where the one result is infinite and the other beyond all that rounding gives: one divided by what cancels. Its
    reciprocal passes 0 in proportion to the roundings, so that no number in between is left out."""
    pole = torch.isinf(truth.values) | torch.isinf(actual)
    if not bool(pole.any()):
        return pole
    values = truth.values.reciprocal()
    spread = spread_of(values, [run.reciprocal() for run in leaf.others(leaf.referee.rounded_runs, expected)])
    inverse = replace(truth, values=values, spread=spread)
    smooth = _smooth(inverse, expected, leaf, torch.reciprocal)
    return pole & smooth & within_distance(actual.reciprocal(), values, SPREAD_FACTOR * spread)


def _smooth(
    truth: Reference,
    expected: Tensor,
    leaf: Leaf,
    of: Callable[[Tensor], Tensor] = torch.positive,
    scale: float = 1.0,
) -> Tensor:
    """Where each run strays in proportion to its roundings, as far as the spread gives room: by no jump, and by no wave
    of which an extremum lies on the way. ``scale``: that of the roundings that the spread is of."""
    runs, damped, stretched = (
        [of(run) for run in leaf.others(leaf.referee.scaled_runs(scale * times), expected)]
        for times in (1.0, DAMPED_SCALE, SPREAD_FACTOR)
    )
    smooth = truth.spread > 0
    if not len(runs) == len(damped) == len(stretched):
        return torch.zeros_like(smooth)
    for run, small, large in zip(runs, damped, stretched, strict=True):
        slope = (small - truth.values) / DAMPED_SCALE
        for moved in (run - truth.values, (large - truth.values) / SPREAD_FACTOR):
            smooth &= torch.abs(moved - slope).nan_to_num(torch.inf) <= MAX_BEND * truth.spread
    return smooth


def as_in_float32(actual: Tensor, truth: Reference, expected: Tensor, dtype: torch.dtype, leaf: Leaf) -> Tensor:
    """Where 16-bit numbers are right because every step may be computed in float32 and the result alone be rounded:
    as near to float64 as float32's roundings stray, in proportion. Eager's own may reach far further, by a jump."""
    if precision(dtype) >= precision(torch.float32):
        return torch.zeros(actual.shape, dtype=torch.bool)
    scale = 2.0 ** (precision(dtype) - precision(torch.float32))
    spread = spread_of(truth.values, leaf.others(leaf.referee.scaled_runs(scale), expected))
    smooth = _smooth(replace(truth, spread=spread), expected, leaf, scale=scale)
    room = SPREAD_FACTOR * spread + ulp(truth.values.abs(), dtype)
    return smooth & torch.isfinite(expected) & within_distance(actual, truth.values, room)


def amplified_spread(truth: Reference, expected: Tensor, leaf: Leaf) -> Tensor:
    """The spread that larger roundings show, in proportion, where results follow them without a jump; 0 elsewhere."""
    bend = spread = torch.zeros(truth.values.shape, dtype=torch.float64)
    for runs in leaf.referee.amplified_runs:
        values = leaf.others(list(runs), expected)
        if len(values) < len(AMPLIFIED_SCALES):
            return torch.zeros_like(spread)
        large, small = ((run - truth.values) / scale for run, scale in zip(values, AMPLIFIED_SCALES, strict=True))
        spread = torch.maximum(spread, large.abs())
        bend = torch.maximum(bend, (large - small).abs())
    return torch.where(torch.isfinite(bend) & (bend <= spread / 2), spread, 0.0)
