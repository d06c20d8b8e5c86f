"""Time budgets, read and refused."""

from __future__ import annotations

import pytest

from torchstone.cli.options import parse_duration
from torchstone.conformance.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("60s", 60), ("10m", 600), ("1h30m", 5400), ("0.5s", 0.5), (" 2H ", 7200)]
)
def test_times_are_read(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "x", "10 minutes", "-5s", "0", "5d", "s", "1e3"])
def test_other_texts_are_refused_with_the_way_to_write_it(text):
    with pytest.raises(InputError, match=r'bad time ".*": '):
        parse_duration(text)
