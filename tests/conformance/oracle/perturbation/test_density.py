"""Whether a number lies as close to runs as these lie to one another, or in a gap between them."""

from __future__ import annotations

import math
import random

import pytest

from torchstone.conformance.oracle.perturbation.search import DENSITIES, _apart
from torchstone.conformance.oracle.tolerances import MAX_SPACING_RATIO

UNIT = 1e-9


def apart(number: float, ordered: list[float], unit: float = UNIT) -> float | None:
    """What the density says where the same width counts as the same everywhere."""
    return _apart(number, ordered, [unit] * len(ordered))


def runs(count: int, intervals: int, seed: int) -> list[float]:
    """Numbers from ``intervals`` intervals of length 0.2 around 0, 1, 2, ..."""
    rng = random.Random(seed)
    return sorted(rng.randrange(intervals) + rng.uniform(-0.1, 0.1) for _ in range(count))


@pytest.mark.parametrize("seed", range(20))
def test_of_forty_intervals_the_gaps_are_told_from_what_is_dense(seed: int) -> None:
    most, room = DENSITIES[-1]
    ordered, rng = runs(most, 40, seed), random.Random(seed)
    at = rng.randrange(39)
    inside, between = apart(at + rng.uniform(-0.1, 0.1), ordered), apart(at + 0.5, ordered)
    assert inside is not None and between is not None and inside <= room < between


def test_few_runs_do_not_tell_the_edge_of_an_interval_from_a_gap() -> None:
    """Six or seven runs lie in each: a right number beyond the last of them is as far from it as they are apart."""
    (few, _), *_ = DENSITIES
    ratios = [apart(20 + 0.099, runs(few, 40, seed)) for seed in range(100)]
    assert all(ratio is not None and ratio <= MAX_SPACING_RATIO for ratio in ratios)


def test_on_a_lattice_more_runs_are_asked_until_hardly_a_point_was_met_once() -> None:
    points = [0.0] * 100 + [1.0] * 50
    assert apart(0.5, points) == math.inf
    assert apart(0.5, [*points, 2.0]) == math.inf
    assert apart(0.5, [*points, 2.0, 3.0, 4.0]) is None


def test_numbers_that_count_as_the_same_are_one_point() -> None:
    points = sorted([k * 1e-12 for k in range(100)] + [1.0 + k * 1e-12 for k in range(100)])
    assert apart(0.5, points) == math.inf
    assert apart(0.5, points, 1e-15) is not None


def test_beyond_all_runs_the_distance_counts_four_times() -> None:
    ordered = [float(k) for k in range(256)]
    assert apart(100.5, ordered) == 0.5
    assert apart(257.0, ordered) == 8.0


def test_a_lattice_is_seen_whose_points_are_as_wide_as_they_are_large() -> None:
    """The exponential of whole numbers, each off by some ULPs of its own: what lies far above the number counts too."""
    rng = random.Random(0)
    ordered = sorted(math.exp(rng.randrange(-20, 20) / 4) * (1 + rng.uniform(-1e-7, 1e-7)) for _ in range(1024))
    number = math.exp(-12.32 / 4)
    assert _apart(number, ordered, [2e-7 * value for value in ordered]) == math.inf
    assert _apart(number, ordered, [2e-7 * number] * len(ordered)) != math.inf
