"""What the default suite leaves to the long one has values that it tries elsewhere."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from .sampling import covering, one_in, some, spread


def asked(rows: list) -> list:
    """The rows that every run tries."""
    return [row for row in rows if not getattr(row, "marks", ())]


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2), (4, 2, 3, 2), (5, 4, 3)])
@pytest.mark.parametrize("strength", [1, 2])
def test_a_covering_array_has_each_values_together(sizes: tuple[int, ...], strength: int) -> None:
    factors = [[f"{place}{value}" for value in range(size)] for place, size in enumerate(sizes)]
    rows = covering(*factors, strength=strength)
    assert [row.values for row in rows] == list(itertools.product(*factors))
    met = {part for row in asked(rows) for part in itertools.combinations(row.values, strength)}
    assert met == {part for row in rows for part in itertools.combinations(row.values, strength)}
    assert len(asked(rows)) < len(rows) or len(sizes) == strength


def test_values_are_asked_about_as_often_as_each_other() -> None:
    found = Counter(row.values[1] for row in asked(covering(range(12), "abc", strength=1)))
    assert found == {"a": 4, "b": 4, "c": 4}


def test_rows_that_are_not_asked_are_long_tests() -> None:
    assert asked(some("abc", "ac".__contains__)) == ["a", "c"] and asked(one_in(2, "abcd", 1)) == ["b", "d"]
    _, left = one_in(2, "ab")
    assert left.values == ("b",) and [mark.name for mark in left.marks] == ["torture"]


class Row:
    """What pytest tells of a row that it has collected."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = nodeid, list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


def test_of_a_table_so_many_rows_are_asked_as_its_mark_says_and_the_same_again() -> None:
    def tried() -> list[str]:
        few = pytest.mark.few(3)
        rows: list[Any] = [Row(f"test_a[{number}]", few) for number in range(9)]
        rows += [
            Row("test_a[long]", few, pytest.mark.torture),
            Row("test_b[0]", few),
            Row("test_c[0]"),
            Row("test_c[1]"),
        ]
        spread(rows)
        return [row.nodeid for row in rows if row.get_closest_marker("torture") is None]

    *some_rows, b, c, d = tried()
    assert len(some_rows) == 3 and {row.partition("[")[0] for row in some_rows} == {"test_a"}
    assert (b, c, d) == ("test_b[0]", "test_c[0]", "test_c[1]") and "test_a[long]" not in some_rows
    assert tried() == [*some_rows, b, c, d]
