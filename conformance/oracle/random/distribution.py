"""Random numbers by their distribution: whether a backend that draws with a generator of its own draws what eager does.

A program is run many times by each, every run from another seed. A run is one observation, whatever depends on what
within it, and any number computed from it is too: so the two samples of such a number are compared by the two-sample
Kolmogorov-Smirnov statistic, whose bound holds for every distribution, discrete ones too. The numbers are single
elements, their mean, size, extremes, zeros, repetitions and neighbours, sums with random signs, how many elements are
among those that eager was seen to give in their place (the two values of a dropout, say), and products of two results.
The levels of all of them together are ``FALSE_POSITIVE_RATE``: so seldom is a right backend accused.

With ``RUNS`` runs a difference of 0.27 between the distribution functions of one such number is seen: of a mean, say,
one that is off by 0.8 of its standard deviation over the runs, which of a thousand independent elements is 0.025 of
theirs. What is rarer or smaller, or shows only in how three or more elements hang together, is not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.tolerances import FALSE_POSITIVE_RATE, SUM_RTOL, real_dtype, tolerance

RUNS = 256
SEEN = 64
"""Further runs of eager: what it gives in each place."""
ELEMENTS = 2048
"""Of a larger result as many elements count, picked once."""
SINGLE, SIGNED = 6, 4
CONSTANT = "gives the same numbers whatever the seed"
"""What is wrong with a backend that draws nothing."""

Observation = list[Tensor]
"""The leaves of one run that are numbers, flat, in float64."""


def observation(leaves: list[Any]) -> Observation:
    """What counts of a run: its tensors and numbers, complex ones as pairs."""
    rows = []
    for leaf in filter(_numeric, leaves):
        plain = dense(leaf if isinstance(leaf, Tensor) else torch.tensor(leaf))
        rows.append(_picked(torch.view_as_real(plain) if plain.is_complex() else plain))
    return rows


def _picked(values: Tensor) -> Tensor:
    """The elements that count, flat, in float64."""
    row = values.reshape(-1).to(torch.float64)
    if len(row) > ELEMENTS:
        row = row[torch.randperm(len(row), generator=torch.Generator().manual_seed(0))[:ELEMENTS]]
    return row


def _picked_room(leaf: Any, room: Tensor | None) -> Tensor:
    """The room of the elements that count: both parts of a complex number have that of the number."""
    if room is None or not isinstance(leaf, Tensor):
        return torch.zeros(())
    return _picked(torch.stack([room, room], -1) if leaf.is_complex() else room)


def _numeric(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | bool | int | float | complex)


class Sample:
    """Runs of a function from a seed to the leaves of a run, each made when it is first asked for, and kept."""

    def __init__(self, function: Callable[[int], list[Any]]) -> None:
        self._function = function
        self._made: list[Observation] = []

    @functools.cached_property
    def first(self) -> list[Any]:
        """The leaves of the run from seed 0, which is none of those that are counted."""
        return self._function(0)

    def runs(self, start: int, count: int) -> list[Observation]:
        """The runs from so many seeds from ``start`` on, which is 1 or more."""
        while len(self._made) < start + count - 1:
            self._made.append(observation(self._function(len(self._made) + 1)))
        return self._made[start - 1 : start + count - 1]


def compare_distributions(
    eager: Sample,
    backend: Callable[[int], list[Any]],
    names: list[str],
    runs: int = RUNS,
    rooms: Callable[[], list[Tensor | None]] | None = None,
) -> tuple[str, dict[str, Any]]:
    """Compare the distribution of eager's runs with that of a backend's, whose leaves' ``names`` are given.

    ``rooms`` gives, leaf by leaf, how far rounding may set apart two numbers that are equal, where that is further than
    the ULPs of the number itself. It is asked only if something sets the distributions apart without.

    Returns a message, empty when nothing sets them apart, and the evidence. Raises ``ValueError`` when the shapes that
    eager gives depend on the numbers drawn.
    """
    first = eager.first
    names = [name for name, leaf in zip(names, first, strict=True) if _numeric(leaf)]
    epsilons = [_epsilon(leaf) for leaf in first if _numeric(leaf)]
    seen, ours = eager.runs(1, SEEN), eager.runs(1 + SEEN, runs)
    theirs = Sample(backend).runs(1, runs)
    shapes = {tuple(map(len, one)) for one in seen + ours}
    if len(shapes) > 1:
        raise ValueError("the shapes depend on the numbers drawn")
    if {tuple(map(len, one)) for one in theirs} != shapes:
        return "the sizes of the results vary, and eager's do not", {}
    stacked = [[torch.stack(rows) for rows in zip(*sample, strict=True)] for sample in (seen, ours, theirs)]
    pools = [Pool(*row) for row in zip(names, stacked[0], epsilons, strict=True)]
    found = _least_likely(pools, *stacked[1:])
    evidence: dict[str, Any] = {"runs": runs, "statistics": found.count, "false_alarm": FALSE_POSITIVE_RATE}
    if found.explained():
        return "", evidence
    if rooms is not None:
        given = [_picked_room(*pair) for pair in zip(first, rooms(), strict=True) if _numeric(pair[0])]
        pools = [_settled(pool._replace(room=room)) for pool, room in zip(pools, given, strict=True)]
        found = _least_likely(pools, *stacked[1:])
        if found.explained():
            return "", evidence | {"room": "that of rounding"}
    probability, _, what, mine, other = found
    quartiles = [[_plain(sample.quantile(q)) for q in (0.0, 0.25, 0.5, 0.75, 1.0)] for sample in (mine, other)]
    evidence |= {"statistic": what, "probability": probability, "expected": quartiles[0], "actual": quartiles[1]}
    constant = all(bool((rows == rows[0]).all()) for rows in stacked[2])
    if constant:
        return CONSTANT, evidence
    told = [
        f"{row[0]:.4g} to {row[4]:.4g}, {float(sample.mean()):.4g} on average"
        for row, sample in zip(quartiles, (mine, other), strict=True)
    ]
    return f"{what} is distributed otherwise: {told[1]} in {runs} runs, where eager's is {told[0]}", evidence


def _epsilon(leaf: Any) -> float:
    dtype = leaf.dtype if isinstance(leaf, Tensor) else torch.float32
    inexact = dtype.is_floating_point or dtype.is_complex
    return tolerance(dtype).ulps * torch.finfo(real_dtype(dtype)).eps / 2 if inexact else 0.0


class Pool(NamedTuple):
    """What eager was seen to give of one leaf, a row for each run; and how far equal numbers may be apart by rounding:
    relative to their size, and in each place."""

    name: str
    seen: Tensor
    epsilon: float
    room: Tensor = torch.zeros(())


def _settled(pool: Pool) -> Pool:
    """The pool in which elements that eager gives further apart by no more than rounding are one number."""
    if not pool.room.dim():
        return pool
    same = pool.seen.amax(0) - pool.seen.amin(0) <= 2 * pool.room
    seen = torch.where(same, pool.seen.median(0).values, pool.seen)
    return pool._replace(seen=seen, room=torch.where(same, 2 * pool.room, pool.room))


class LeastLikely(NamedTuple):
    """Of ``count`` statistics the one whose two samples are least likely of one distribution."""

    probability: float
    count: int
    what: str = ""
    mine: Tensor = torch.zeros(1)
    other: Tensor = torch.zeros(1)

    def explained(self) -> bool:
        """Whether chance explains it."""
        return self.probability * self.count >= FALSE_POSITIVE_RATE


def _least_likely(pools: list[Pool], mine: list[Tensor], other: list[Tensor]) -> LeastLikely:
    rows = zip(_statistics(pools, mine), _statistics(pools, other), strict=True)
    found = [(_probability(left.runs, right.runs, left), left.what, left.runs, right.runs) for left, right in rows]
    if not found:
        return LeastLikely(1.0, 1)
    probability, what, ours, theirs = min(found, key=lambda row: row[0])
    return LeastLikely(probability, len(found), what, ours, theirs)


class Statistic(NamedTuple):
    """What it is of, its value in each run, and how far apart equal ones may be by rounding: relative to their size,
    and in all."""

    what: str
    runs: Tensor
    epsilon: float = 0.0
    room: float = 0.0


def _statistics(pools: list[Pool], sample: list[Tensor]) -> Iterator[Statistic]:
    before: Tensor | None = None
    for pool, rows in zip(pools, sample, strict=True):
        if not rows.shape[1]:
            continue
        known, rows = _placed(pool, rows)
        numbers, seen = (part.nan_to_num(0.0, 1e300, -1e300) for part in (rows, pool.seen))
        yield from _of_one(pool._replace(seen=seen), numbers)
        yield Statistic(f"the share of NaN in {pool.name}", rows.isnan().to(torch.float64).mean(1))
        yield Statistic(f"the share of elements of {pool.name} that eager was seen to give", known)
        if before is not None and before.shape == numbers.shape:
            what = f"the product of {pool.name} with the result before it"
            yield Statistic(what, _scaled(before * numbers).mean(1), pool.epsilon)
        before = numbers


def _placed(pool: Pool, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of each run the share of elements that some run of eager in the pool gave in their place, but for rounding; and
    the runs with these in their places."""
    order = pool.seen.nan_to_num(math.inf).sort(0).values.t().contiguous()  # [elements, pool]
    values = rows.t().contiguous()
    at = torch.searchsorted(order, values)
    left, right = (order.gather(1, place.clamp(0, pool.seen.shape[0] - 1)) for place in (at - 1, at))
    nearest = torch.where((values - left).abs() <= (right - values).abs(), left, right)
    room = pool.room.reshape(-1, 1) if pool.room.dim() else pool.room
    close = (values - nearest).abs() <= torch.maximum(pool.epsilon * nearest.abs(), room)
    found = (values == nearest) | (close & nearest.isfinite())
    return found.to(torch.float64).mean(0), torch.where(found, nearest, values).t()


def _of_one(pool: Pool, rows: Tensor) -> Iterator[Statistic]:
    name, count = pool.name, rows.shape[1]
    rooms = pool.room.expand(count)
    for place in sorted({round(k * (count - 1) / max(SINGLE - 1, 1)) for k in range(SINGLE)}):
        yield Statistic(f"element {place} of {name}", rows[:, place], pool.epsilon, float(rooms[place]))
    if count == 1:
        return
    largest = float(rooms.max())
    for what, values in _of_all(pool.seen, rows):
        yield Statistic(f"{what} {name}", values, pool.epsilon, largest if what in _OF_SIZE else 0.0)


_OF_SIZE = ("the mean of", "the mean size of", "the least of", "the largest of", "the middle of")
"""Statistics that rounding moves by no more than it moves an element."""


def _of_all(pool: Tensor, rows: Tensor) -> Iterator[tuple[str, Tensor]]:
    count = rows.shape[1]
    centre = pool.median(0).values
    spread = (pool - centre).abs().median(0).values
    scaled = (rows - centre) / torch.where(spread > 0, spread, 1.0)
    nonzero = (rows != 0).sum(1)
    ordered = rows.sort(1).values
    yield "the mean of", rows.mean(1)
    yield "the mean size of", rows.abs().mean(1)
    yield "the mean size of what is not zero in", rows.abs().sum(1) / nonzero.clamp(min=1)
    yield "the spread of", _scaled(scaled).square().mean(1)
    yield "the least of", ordered[:, 0]
    yield "the largest of", ordered[:, -1]
    yield "the middle of", ordered[:, count // 2]
    yield "the share of zeros in", 1 - nonzero / count
    yield "how many different numbers are in", 1.0 + (ordered.diff(dim=1) != 0).sum(1)
    yield "how alike neighbours are in", (_scaled(scaled)[:, 1:] * _scaled(scaled)[:, :-1]).mean(1)
    generator = torch.Generator().manual_seed(1)
    for number in range(SIGNED):
        signs = torch.randint(0, 2, (count,), generator=generator).to(torch.float64) * 2 - 1
        yield f"sum {number} with random signs of", _scaled(scaled) @ signs


def _scaled(rows: Tensor) -> Tensor:
    """Numbers whose squares do not overflow."""
    return rows.clamp(-1e100, 1e100)


def _probability(mine: Tensor, other: Tensor, rounding: Statistic) -> float:
    """A bound on how likely two samples of one distribution are as far apart as these.

    Of n runs each, the largest difference of the distribution functions is d or more with a probability of
    ``e * exp(-n d**2)`` at most (Wei and Dudley, Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities, 2012). Numbers
    that rounding may set apart count as equal ones.
    """
    ordered, order = torch.cat([mine, other]).sort()
    size = max(float(ordered.abs().max()) * max(rounding.epsilon, SUM_RTOL), rounding.room)
    group = torch.cat([torch.zeros(1), (ordered.diff() > size).cumsum(0)]).long()
    counts = torch.zeros(int(group[-1]) + 1, dtype=torch.float64)
    counts.index_add_(0, group, torch.where(order < len(mine), 1.0, -1.0).to(torch.float64))
    distance = float(counts.cumsum(0).abs().max()) / len(mine)
    return min(1.0, math.exp(1.0 - len(mine) * distance**2))


def _plain(value: Tensor) -> float:
    return float(f"{float(value):.6g}")
