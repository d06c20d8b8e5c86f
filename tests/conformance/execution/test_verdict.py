"""Which way a transition goes, over every pair of outcomes; text from a compiler can steer nothing."""

from __future__ import annotations

import itertools

import pytest

from torchstone.conformance.escape import one_line, spreadsheet, visible
from torchstone.conformance.execution.verdict import ABSENT, FAILURES, Direction, Outcome, direction

ALL = [*map(str, Outcome), ABSENT]


def test_directions():
    for before, after in itertools.product(ALL, ALL):
        found = direction(before, after)
        assert (found is None) == (before == after)
        if found is Direction.IMPROVEMENT:
            assert after == "pass" and before != ABSENT
        if before == "pass" and after not in ("pass", ABSENT):
            assert found is Direction.REGRESSION
        if after in FAILURES and after != "harness-error" and before not in FAILURES:
            assert found is Direction.REGRESSION
        if found is Direction.REGRESSION:
            assert after not in ("pass", ABSENT)
            assert direction(after, before) is not Direction.REGRESSION


def test_from_failure_to_failure():
    assert direction("mismatch", "crash") is Direction.REGRESSION
    assert direction("crash", "mismatch") is direction("error", "unsupported") is Direction.CHANGE
    assert direction("unsupported", "harness-error") is Direction.CHANGE


def test_text_is_made_fit_for_a_line():
    assert one_line("\n  \n  got 1\nmore") == "got 1"
    assert one_line("\x1b[31mred\x00\u202eb\x7f") == "␛[31mred␀\ufffdb␡"
    assert one_line("x" * 10**7, 20) == "x" * 19 + "…" and one_line(" \n") == ""
    assert visible("é — ok") == "é — ok" and visible("a\nb\u2028c") == "a␊b\ufffdc"


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_cell_is_a_formula(cell):
    assert spreadsheet(cell) == "'" + cell
    assert spreadsheet("a" + cell) == "a" + cell and spreadsheet("") == ""


@pytest.mark.parametrize("between", "\t\r\n;")
def test_what_may_start_a_cell_of_its_own_is_no_formula_either(between):
    assert spreadsheet(f"a{between}=1") == f"a{between}'=1"
    assert spreadsheet(f"{between}=1") == ("" if between == ";" else "'") + f"{between}'=1"
