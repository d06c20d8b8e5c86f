"""Is a number a possible result? A search among runs of the rounding model for one that gives it.

Runs whose roundings are drawn at random scatter over what a program may give. Between two of them lie others, whose
roundings are a mixture of theirs. Where results follow roundings continuously, the way from the nearest run below a
number to the nearest above leads to a run that gives it. Where a function jumps, no run lies in between:
``sign(sin(1e8 * x))`` is 1 or -1 and nothing else, however far rounding strays, and ``1 + 0.1 * sin(3e8 * x)`` beside
it is anything from 0.9 to 1.1 and never 0.

Where no way leads to the number, it has to lie as close to many runs as these lie to one another.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from torchstone.conformance.oracle.perturbation.draws import Draws, Mix, on_line
from torchstone.conformance.oracle.reference.leaf import Effort, Leaf
from torchstone.conformance.oracle.reference.scatter import Scatter, one_run
from torchstone.conformance.oracle.tolerances import MAX_SPACING_RATIO, Tolerance, real_dtype
from torchstone.conformance.oracle.ulp import ulp

SEED_OF_SEARCH = 1 << 20
HALVINGS = 40
"""How often the way between two runs is halved: past the digits of float32, and some for what cancels."""
STRAIGHT = 8
"""In the first so many steps every other one goes where a straight line would have the number, and does not halve."""
NARROW = 1 / 64
"""Float64's own steps are too wide for a run to meet a number of that dtype: it will do to come from both sides to a
distance that is such a part of the way. At a jump the whole way is left."""
BUDGET = 800
"""How many runs are made for one result, all its elements together."""
MOST_NUMBERS = 1 << 27
"""How many numbers the runs of one search may hold, a gigabyte: of large results there are fewer runs."""
DENSITIES = (256, MAX_SPACING_RATIO / 64), (1024, MAX_SPACING_RATIO / 4), (4096, MAX_SPACING_RATIO)
"""How many runs the density is taken from, and how far from them, in their spacing, a number may be. With four times as
many runs the spacing is a quarter and a gap as wide as before: so the few tell most gaps, and the many are asked of
what could be the edge of one."""
MAX_UNMET = 1 / 64
"""Share of the runs that may give what was not met before, of a lattice of which all is to be known."""
NEIGHBOURS = 8
"""How many runs to either side tell the density."""


def attained(
    actual: Tensor, wanted: Tensor, leaf: Leaf, scatter: Scatter, dtype: torch.dtype, row: Tolerance
) -> Tensor:
    """Which of the ``wanted`` elements are possible results: some run of the scatter gives them.

    ``actual`` is float64 or complex128. The search ends with the first element that no run gives.
    """
    samples = _Samples(leaf, actual, scatter)
    if len(samples.rows) < 2 or not bool(wanted.any()):
        return torch.zeros_like(wanted)
    size, flat = actual.abs(), _parts(actual).reshape(-1)
    if actual.is_complex():  # each part for itself, in ULPs of the modulus
        size, wanted = (t.unsqueeze(-1).expand(_parts(actual).shape) for t in (size, wanted))
    shape, size, found = wanted.shape, size.reshape(-1), ~wanted.reshape(-1)
    search = _Search(samples, flat, size, dtype, row, leaf.effort)
    while True:
        distance = search.distance()
        found |= distance <= search.unit
        left = ~found & torch.isfinite(flat)
        if not bool(left.any()):
            break
        if samples.spent:
            found |= left & search.is_dense(left)
            break
        element = int(torch.where(left, distance / search.unit, -1.0).argmax())
        if not search.between(element):
            dense = search.is_dense(left)  # a branch of the function may be too short for a run to lie on it
            if not bool(dense[element]):
                break
            found |= dense
        found[element] = True
    found = found.reshape(shape)
    return (found.all(-1) if actual.is_complex() else found) & torch.isfinite(actual)


def between_runs(
    actual: Tensor, wanted: Tensor, leaf: Leaf, scatter: Scatter, dtype: torch.dtype, row: Tolerance
) -> Tensor:
    """Which of the ``wanted`` real numbers a run on the way between two others gives, to the first that none does."""
    samples, found = _Samples(leaf, actual, scatter), torch.zeros_like(wanted).reshape(-1)
    if len(samples.rows) < 2 or actual.is_complex():
        return torch.zeros_like(wanted)
    search = _Search(samples, actual.reshape(-1), actual.abs().reshape(-1), dtype, row, leaf.effort)
    left = (wanted & torch.isfinite(actual)).reshape(-1)
    while True:
        distance = search.distance()
        met = left & (distance <= search.unit)
        found, left = found | met, left & ~met
        if samples.spent or not bool(left.any()):
            break
        element = int(torch.where(left, distance / search.unit, -1.0).argmax())
        if not search.between(element):
            break
        found[element], left[element] = True, False
    return found.reshape(wanted.shape)


def _parts(values: Tensor) -> Tensor:
    """Real numbers as they are, complex ones as two in a last dim."""
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


class _Samples:
    """The runs of a scatter, as the numbers of one result: a row for each run."""

    def __init__(self, leaf: Leaf, like: Tensor, scatter: Scatter) -> None:
        self._leaf, self._like, self._scatter = leaf, like, scatter
        self.rows: list[Tensor] = []
        self.draws: list[Mix] = []
        self.taken = 0
        for draws, run in scatter.first:
            self._add(draws, leaf.other(run, like))

    def _add(self, draws: Mix, value: Tensor | None) -> Tensor | None:
        if value is None:
            return None
        self.draws.append(draws)
        self.rows.append(_parts(value).reshape(-1))
        return self.rows[-1]

    def more(self, draws: Mix) -> Tensor | None:
        """What one more run gives; None if it gives nothing like the others."""
        self.taken += 1
        return self._add(draws, self._leaf.other(self._scatter.run(draws), self._like))

    def many(self, draws: list[Mix]) -> list[Tensor | None]:
        """What several runs more give."""
        self.taken += len(draws)
        runs = zip(draws, self._scatter.runs(draws), strict=True)
        return [self._add(mix, self._leaf.other(run, self._like)) for mix, run in runs]

    @property
    def spent(self) -> bool:
        """Whether as many runs have been made as there may be."""
        return self.taken >= BUDGET or len(self.rows) >= self.most_runs

    @property
    def most_runs(self) -> int:
        """How many runs a search may hold."""
        return MOST_NUMBERS // max(1, self.rows[0].numel())


class _Search:
    def __init__(
        self, samples: _Samples, wanted: Tensor, size: Tensor, dtype: torch.dtype, row: Tolerance, effort: Effort
    ) -> None:
        self.samples, self.wanted, self.dtype, self.row = samples, wanted, dtype, row
        self.densities = DENSITIES if effort is Effort.LONG_SEARCH else DENSITIES[:1]
        stacked = torch.stack(samples.rows).nan_to_num(math.inf, math.inf, -math.inf)
        for side in (stacked - wanted, wanted - stacked):  # the nearest run to either side
            nearest = wanted.abs() + torch.where(side >= 0, side, math.inf).amin(0)
            size = torch.maximum(size, torch.where(torch.isfinite(nearest), nearest, 0.0))
        self.coarse = real_dtype(dtype) is torch.float64
        self.unit = row.ulps * ulp(size.clamp(max=torch.finfo(torch.float64).max), dtype) + row.tiny

    def distance(self) -> Tensor:
        """How far each number is from the nearest run."""
        distance = torch.full(self.wanted.shape, math.inf, dtype=torch.float64)
        for values in self.samples.rows:
            distance = torch.minimum(distance, (values - self.wanted).abs().nan_to_num(math.inf, math.inf, math.inf))
        return distance

    def _values(self, element: int) -> list[float]:
        return [float(row[element]) for row in self.samples.rows]

    @staticmethod
    def _encloses(number: float, values: list[float]) -> bool:
        finite = [v for v in values if math.isfinite(v)]
        return min(finite, default=math.inf) <= number <= max(finite, default=-math.inf)

    def between(self, element: int) -> bool:
        """Whether an element lies between two runs, and the way from one to the other leads to a run that gives it."""
        number, values = float(self.wanted[element]), self._values(element)
        return self._encloses(number, values) and self._between(element, number, values)

    def _between(self, element: int, number: float, values: list[float]) -> bool:
        """Whether halving the way from the nearest run below to the nearest above leads to a run that gives the number:
        where results follow roundings continuously, one on the way does, and at a jump none."""
        finite = [(v, k) for k, v in enumerate(values) if math.isfinite(v)]
        low, high = max((v, k) for v, k in finite if v <= number), min((v, k) for v, k in finite if v >= number)
        ends, below, above = (low[1], high[1]), (0.0, low[0]), (1.0, high[0])
        for step in range(HALVINGS):
            t = (below[0] + above[0]) / 2
            if step < STRAIGHT and step % 2 == 0 and above[1] > below[1]:
                t = below[0] + (above[0] - below[0]) * (number - below[1]) / (above[1] - below[1])
            row = self.samples.more(on_line(self.samples.draws[ends[0]], self.samples.draws[ends[1]], t))
            value = math.nan if row is None else float(row[element])
            if abs(value - number) <= float(self.unit[element]):
                return True
            if not math.isfinite(value) or self.samples.spent:
                return False
            below, above = ((t, value), above) if value <= number else (below, (t, value))
            if self.coarse and above[1] - below[1] <= (values[high[1]] - values[low[1]]) * NARROW:
                return True
        return False

    def is_dense(self, wanted: Tensor) -> Tensor:
        """Which numbers some run gives, or which lie as close to the runs as these lie to one another."""
        found = torch.zeros_like(wanted)
        elements = wanted.nonzero().reshape(-1).tolist()
        for count, room in self.densities:
            rows = self._rows(elements, min(count, self.samples.most_runs))
            numbers = {element: float(self.wanted[element]) for element in elements}
            if rows is None or any(_beyond(numbers[element], rows[element]) for element in elements):
                return torch.zeros_like(wanted)
            found |= wanted & (self.distance() <= self.unit)
            apart = {e: _apart(numbers[e], rows[e], self._units(e, rows[e])) for e in elements if not found[e]}
            found[[element for element, ratio in apart.items() if ratio is not None and ratio <= room]] = True
            elements = [e for e, ratio in apart.items() if ratio is None or room < ratio <= MAX_SPACING_RATIO]
            if not elements:
                break
        return found

    def _units(self, element: int, values: list[float]) -> list[float]:
        """How far from each value what counts as the same may lie: in ULPs of its own, where it is the larger one."""
        own = self.row.ulps * ulp(torch.tensor(values, dtype=torch.float64).abs(), self.dtype)
        return torch.maximum(own, self.unit[element]).tolist()

    def _rows(self, elements: list[int], count: int) -> dict[int, list[float]] | None:
        """What ``count`` runs give for each element; fewer, if one of these has its number far beyond them. None if a
        run gives nothing."""
        while True:
            pairs = zip(self.samples.rows, self.samples.draws, strict=True)
            runs = torch.stack([row for row, mix in pairs if len(mix) == 1])  # those of a search crowd around its start
            rows = {element: sorted(filter(math.isfinite, runs[:, element].tolist())) for element in elements}
            far = any(_beyond(float(self.wanted[element]), row) for element, row in rows.items())
            if far or len(runs) >= count:
                return rows
            made = len(self.samples.rows)
            self.samples.many([anew(-seed) for seed in range(len(runs), count)])
            if len(self.samples.rows) < made + count - len(runs):
                return None


def anew(seed: int) -> Mix:
    """What no other run has drawn."""
    return one_run(Draws(SEED_OF_SEARCH + seed))


def _apart(number: float, ordered: list[float], units: list[float]) -> float | None:
    """How far a number is from the next run below or above, in the median spacing of the runs on that side.

    None if more runs have to tell: they lie on a lattice, and say nothing of what is between its points, but some
    points were met only once, and as likely as one of these is one that none has met yet (I. J. Good, 1953). Infinite
    if hardly any is left to meet.
    """
    points: list[list[float]] = []
    for value, unit in zip(ordered, units, strict=True):  # what lies as close as numbers that count as the same
        if points and value - points[-1][-1] <= unit:
            points[-1].append(value)
        else:
            points.append([value])
    met_once = sum(len(point) == 1 for point in points)
    if 2 * met_once < len(ordered):
        return None if MAX_UNMET * len(ordered) < met_once else math.inf
    below, above = [p[-1] for p in reversed(points) if p[-1] <= number], [p[0] for p in points if p[0] > number]
    # One number in 257 is beyond 256 others: there the distance counts four times, and more beyond more of them.
    weight = 1.0 if below and above else math.sqrt(len(ordered)) / 4
    ratios = []
    for side in (below[: NEIGHBOURS + 1], above[: NEIGHBOURS + 1]):
        if len(side) > NEIGHBOURS:
            spacing = sorted(abs(a - b) for a, b in itertools.pairwise(side))[NEIGHBOURS // 2]
            ratios.append(weight * abs(number - side[0]) / spacing)
    return min(ratios, default=math.inf)


def _beyond(number: float, ordered: list[float]) -> bool:
    """Whether a number is further from the runs than any two of them are apart, many times; or there are none."""
    if not ordered:
        return True
    room = MAX_SPACING_RATIO * (ordered[-1] - ordered[0])
    return not ordered[0] - room <= number <= ordered[-1] + room
