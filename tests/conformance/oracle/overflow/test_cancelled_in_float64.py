"""Sums of float64 that cancel, or end where the range does: what some order of the terms gives is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one
from torchstone.conformance.execution.verdict import Outcome

WIDEST = torch.finfo(torch.float64).max
# With signs that alternate, the terms add up to the largest number.
ENDS = torch.tensor([WIDEST] * 7 + [0.0] * 3, dtype=torch.float64)
# The small terms add up to 30. A mean has several formulas, and runs of each of them are apart.
MANY = torch.tensor([WIDEST, *[0.0, 0.5] * 60, -WIDEST], dtype=torch.float64)


def transform(part: float) -> Callable[[Tensor], Tensor]:
    """A transform with a part of the largest number in its middle, where eager's steps give NaN."""
    return lambda x: torch.fft.fft(x).index_fill(0, torch.tensor([5]), part * WIDEST)


def mean(value: float) -> Callable[[Tensor], Any]:
    """A standard deviation that is eager's, with another mean."""
    return lambda x: (torch.std_mean(x)[0], torch.tensor(value, dtype=torch.float64))


@pytest.mark.parametrize("part, right", [(1.0, True), (0.75, False)])
def test_a_transform_at_the_end_of_the_range(part: float, right: bool) -> None:
    finding = compare(one("fft.fft"), transform(part), ENDS)
    assert (finding.outcome is not Outcome.MISMATCH) == right, finding


@pytest.mark.few(1)
@pytest.mark.parametrize("value, right", [(0.25 * 120 / 122, True), (1e10, False)])
def test_a_mean_of_many_terms(value: float, right: bool) -> None:
    finding = compare(one("std_mean", X), mean(value), MANY)
    assert (finding.outcome is not Outcome.MISMATCH) == right, finding
