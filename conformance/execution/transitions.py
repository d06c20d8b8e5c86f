"""From one outcome to another: what is a regression, what an improvement. Reports and expectations ask here."""

from __future__ import annotations

from enum import StrEnum

from torchstone.conformance.execution.verdict import FAILURES, Outcome

ABSENT = "absent"
"""Stands for the outcome of a case that one side does not have."""


class Direction(StrEnum):
    """Which way a transition goes."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    CHANGE = "change"


_BACKEND_FAILURES = FAILURES - {Outcome.HARNESS_ERROR}  # infrastructure trouble is never a backend's failure


def direction(before: str, after: str) -> Direction | None:
    """Return the direction of a transition, None when nothing changed.

    A regression is a case that passed and does not, that fails and did not (new cases included), or that failed in
    another way and crashes. An improvement is a case that passes and did not. The rest, such as from one failure to
    another, or a case that is no longer there, is a change.
    """
    if before == after:
        return None
    if after == ABSENT:
        return Direction.CHANGE
    fails, failed = after in _BACKEND_FAILURES, before in _BACKEND_FAILURES
    if before == Outcome.PASS or (fails and not failed) or (failed and after == Outcome.CRASH):
        return Direction.REGRESSION
    return Direction.IMPROVEMENT if after == Outcome.PASS and before != ABSENT else Direction.CHANGE
