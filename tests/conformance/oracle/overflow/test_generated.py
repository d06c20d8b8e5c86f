"""Generated programs near the end of the range: a right answer is never accused, a wrong one never absolved.

``python -m tests.conformance.oracle.overflow.sweep`` tries as many as wanted; here one of each family is tried.
"""

from __future__ import annotations

import random

import pytest

from tests.conformance.oracle.overflow.programs import FAMILIES, generated, right_answers, wrong_answers
from tests.conformance.oracle.overflow.sweep import absolved, accused

SEEDS = (16, 9, 18, 19, 12, 21, 14, 23)


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_are_not_accused_and_wrong_ones_not_absolved(seed: int) -> None:
    case = generated(seed)
    assert list(accused(case)) == []
    assert list(absolved(case, seed)) == []


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_each_family_is_tried_and_has_answers() -> None:
    assert {seed % len(FAMILIES) for seed in SEEDS} == set(range(len(FAMILIES)))
    for seed in range(len(FAMILIES)):
        case = generated(seed)
        assert len(list(right_answers(case))) > 1
        if case.rows:
            assert list(wrong_answers(case, case.program(*case.inputs), random.Random(seed)))
