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

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

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

Observation = list[Tensor]
"""The leaves of one run that are numbers, flat, in float64."""


def observation(leaves: list[Any]) -> Observation:
    """What counts of a run: its tensors and numbers, complex ones as pairs."""
    rows = []
    for leaf in filter(_numeric, leaves):
        plain = dense(leaf if isinstance(leaf, Tensor) else torch.tensor(leaf))
        plain = torch.view_as_real(plain) if plain.is_complex() else plain
        row = plain.reshape(-1).to(torch.float64)
        if len(row) > ELEMENTS:
            row = row[torch.randperm(len(row), generator=torch.Generator().manual_seed(0))[:ELEMENTS]]
        rows.append(row)
    return rows


def _numeric(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | bool | int | float | complex)


def compare_distributions(
    eager: Callable[[int], list[Any]], backend: Callable[[int], list[Any]], names: list[str], runs: int = RUNS
) -> tuple[str, dict[str, Any]]:
    """Compare the distributions of two functions from a seed to the leaves of a run, whose ``names`` are given.

    Returns a message, empty when nothing sets them apart, and the evidence. Raises ``ValueError`` when the shapes that
    eager gives depend on the numbers drawn.
    """
    first = eager(0)
    names = [name for name, leaf in zip(names, first, strict=True) if _numeric(leaf)]
    epsilons = [_epsilon(leaf) for leaf in first if _numeric(leaf)]
    seeds = itertools.count(1)
    seen = [observation(eager(seed)) for seed, _ in zip(seeds, range(SEEN), strict=False)]
    ours = [observation(eager(seed)) for seed, _ in zip(seeds, range(runs), strict=False)]
    theirs = [observation(backend(seed)) for seed, _ in zip(seeds, range(runs), strict=False)]
    shapes = {tuple(map(len, one)) for one in seen + ours}
    if len(shapes) > 1:
        raise ValueError("the shapes depend on the numbers drawn")
    if {tuple(map(len, one)) for one in theirs} != shapes:
        return "the sizes of the results vary, and eager's do not", {}
    stacked = [[torch.stack(rows) for rows in zip(*sample, strict=True)] for sample in (seen, ours, theirs)]
    pairs = [
        (what, mine, other, epsilon)
        for (what, mine, epsilon), (_, other, _) in zip(
            _statistics(stacked[0], stacked[1], names, epsilons),
            _statistics(stacked[0], stacked[2], names, epsilons),
            strict=True,
        )
    ]
    evidence: dict[str, Any] = {"runs": runs, "statistics": len(pairs), "false_alarm": FALSE_POSITIVE_RATE}
    if not pairs:
        return "", evidence
    worst = min(((_probability(mine, other, epsilon), what, mine, other) for what, mine, other, epsilon in pairs))
    probability, what, mine, other = worst
    if probability * len(pairs) >= FALSE_POSITIVE_RATE:
        return "", evidence
    quartiles = [[_plain(sample.quantile(q)) for q in (0.0, 0.25, 0.5, 0.75, 1.0)] for sample in (mine, other)]
    evidence |= {"statistic": what, "probability": probability, "expected": quartiles[0], "actual": quartiles[1]}
    constant = all(bool((rows == rows[0]).all()) for rows in stacked[2])
    if constant:
        return "gives the same numbers whatever the seed", evidence
    between = [f"{row[0]:.4g} to {row[4]:.4g}" for row in quartiles]
    return f"{what} is distributed otherwise: {between[1]} in {runs} runs, where eager's is {between[0]}", evidence


def _epsilon(leaf: Any) -> float:
    dtype = leaf.dtype if isinstance(leaf, Tensor) else torch.float32
    inexact = dtype.is_floating_point or dtype.is_complex
    return tolerance(dtype).ulps * torch.finfo(real_dtype(dtype)).eps / 2 if inexact else 0.0


Statistic = tuple[str, Tensor, float]
"""What it is of, its value in each run, and how far apart, relative to their size, equal ones may be by rounding."""


def _statistics(
    seen: list[Tensor], sample: list[Tensor], names: list[str], epsilons: list[float]
) -> Iterator[Statistic]:
    before: Tensor | None = None
    for name, pool, rows, epsilon in zip(names, seen, sample, epsilons, strict=True):
        if not rows.shape[1]:
            continue
        known, rows = _placed(pool, rows, epsilon)
        numbers, pool = (part.nan_to_num(0.0, 1e300, -1e300) for part in (rows, pool))
        for what, values in _of_one(name, numbers, pool):
            yield what, values, epsilon
        yield f"the share of NaN in {name}", rows.isnan().to(torch.float64).mean(1), 0.0
        yield f"how many elements of {name} eager was seen to give", known, 0.0
        if before is not None and before.shape == numbers.shape:
            yield f"the product of {name} with the result before it", _scaled(before * numbers).mean(1), epsilon
        before = numbers


def _placed(pool: Tensor, rows: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Of each run the share of elements that some run of eager in the pool gave in their place, but for rounding; and
    the runs with these in their places."""
    order = pool.nan_to_num(math.inf).sort(0).values.t().contiguous()  # [elements, pool]
    values = rows.t().contiguous()
    at = torch.searchsorted(order, values)
    left, right = (order.gather(1, place.clamp(0, pool.shape[0] - 1)) for place in (at - 1, at))
    nearest = torch.where((values - left).abs() <= (right - values).abs(), left, right)
    close = (values - nearest).abs() <= epsilon * nearest.abs()
    found = (values == nearest) | (close & nearest.isfinite())
    return found.to(torch.float64).mean(0), torch.where(found, nearest, values).t()


def _of_one(name: str, rows: Tensor, pool: Tensor) -> Iterator[tuple[str, Tensor]]:
    count = rows.shape[1]
    for place in sorted({round(k * (count - 1) / max(SINGLE - 1, 1)) for k in range(SINGLE)}):
        yield f"element {place} of {name}", rows[:, place]
    if count == 1:
        return
    centre = pool.median(0).values
    spread = (pool - centre).abs().median(0).values
    scaled = (rows - centre) / torch.where(spread > 0, spread, 1.0)
    nonzero = (rows != 0).sum(1)
    ordered = rows.sort(1).values
    yield f"the mean of {name}", rows.mean(1)
    yield f"the mean size of {name}", rows.abs().mean(1)
    yield f"the mean size of what is not zero in {name}", rows.abs().sum(1) / nonzero.clamp(min=1)
    yield f"the spread of {name}", _scaled(scaled).square().mean(1)
    yield f"the least of {name}", ordered[:, 0]
    yield f"the largest of {name}", ordered[:, -1]
    yield f"the middle of {name}", ordered[:, count // 2]
    yield f"the share of zeros in {name}", nonzero / count
    yield f"how many different numbers are in {name}", (ordered.diff(dim=1) != 0).sum(1).to(torch.float64)
    yield f"how alike neighbours in {name} are", (_scaled(scaled)[:, 1:] * _scaled(scaled)[:, :-1]).mean(1)
    generator = torch.Generator().manual_seed(1)
    for number in range(SIGNED):
        signs = torch.randint(0, 2, (count,), generator=generator).to(torch.float64) * 2 - 1
        yield f"sum {number} of {name} with random signs", _scaled(scaled) @ signs


def _scaled(rows: Tensor) -> Tensor:
    """Numbers whose squares do not overflow."""
    return rows.clamp(-1e100, 1e100)


def _probability(mine: Tensor, other: Tensor, epsilon: float) -> float:
    """A bound on how likely two samples of one distribution are as far apart as these.

    Of n runs each, the largest difference of the distribution functions is d or more with a probability of
    ``e * exp(-n d**2)`` at most (Wei and Dudley, Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities, 2012). Numbers
    that rounding may set apart count as equal ones.
    """
    ordered, order = torch.cat([mine, other]).sort()
    size = ordered.abs().max() * max(epsilon, SUM_RTOL)
    group = torch.cat([torch.zeros(1), (ordered.diff() > size).cumsum(0)]).long()
    counts = torch.zeros(int(group[-1]) + 1, dtype=torch.float64)
    counts.index_add_(0, group, torch.where(order < len(mine), 1.0, -1.0).to(torch.float64))
    distance = float(counts.cumsum(0).abs().max()) / len(mine)
    return min(1.0, math.exp(1.0 - len(mine) * distance**2))


def _plain(value: Tensor) -> float:
    return float(f"{float(value):.6g}")
