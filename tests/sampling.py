"""Rows of a parametrized test that every run of the suite tries. The others run with the long tests."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def some(rows: Iterable[Any], asked: Callable[[Any], object]) -> list[Any]:
    """The rows of one parameter: those that are ``asked``, and the others among the long tests."""
    return [row if asked(row) else pytest.param(row, marks=pytest.mark.torture) for row in rows]


def one_in(count: int, rows: Iterable[Any], first: int = 0) -> list[Any]:
    """Rows that are drawn alike: one in ``count``, and the others among the long tests."""
    return [
        row if number % count == first else pytest.param(row, marks=pytest.mark.torture)
        for number, row in enumerate(rows)
    ]


def covering(*levels: Iterable[Any], strength: int = 2) -> list[Any]:
    """Rows of parameters that are crossed, as few as have each ``strength`` of their values together; the product of
    all has the others, among the long tests.

    A covering array: what goes wrong depends on one or two of the parameters, and seldom on more.
    """
    factors = [list(each) for each in levels]
    rows = list(itertools.product(*(range(len(factor)) for factor in factors)))
    parts = {row: set(itertools.combinations(enumerate(row), strength)) for row in rows}
    left, asked, met = set().union(*parts.values()), set(), Counter()
    while left:  # of rows that add as much, one whose values have been asked the least
        best = max(rows, key=lambda row: (len(parts[row] & left), -sum(met[value] for value in enumerate(row))))
        asked.add(best)
        met.update(enumerate(best))
        left -= parts[best]
    return [
        pytest.param(
            *(factor[at] for factor, at in zip(factors, row, strict=True)),
            marks=() if row in asked else pytest.mark.torture,
        )
        for row in rows
    ]


def spread(items: list[pytest.Item]) -> None:
    """Mark as long tests all but as many rows of each test as its mark ``few`` says: the rows are drawn by its name."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") is not None and item.get_closest_marker("torture") is None:
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, rows in tables.items():
        (count,) = rows[0].get_closest_marker("few").args
        kept = random.Random(name).sample(rows, min(count, len(rows)))
        for row in rows:
            if row not in kept:
                row.add_marker(pytest.mark.torture)
