"""Whether two runs of a case fail in the same way."""

from __future__ import annotations

from typing import Any, Protocol

from torchstone.conformance.execution.verdict import Kind, Outcome

ENDED = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM})
"""Outcomes of a process that ended: which of them it was says more of the machine than of the failure."""

SHARE = 0.1
"""Of two distances from eager, in ULPs, the least share that the smaller one is of the larger if both are of one cause:
a result that is a rounding off says nothing of one that is wrong in the third digit."""

MOST = 2.0**20
"""ULPs from which on a number is nothing like eager's."""


class Failure(Protocol):
    """What a verdict and a finding have in common."""

    @property
    def outcome(self) -> Outcome: ...
    @property
    def kind(self) -> str: ...
    @property
    def evidence(self) -> dict[str, Any]: ...


def same_failure(one: Failure, other: Failure) -> bool:
    """Say whether two are of the same outcome and kind and, where numbers differ, about as far from eager."""
    if one.outcome in ENDED and other.outcome in ENDED:
        return True
    if (one.outcome, str(one.kind)) != (other.outcome, str(other.kind)):
        return False
    if one.kind != Kind.VALUE:
        return True
    smaller, larger = sorted(map(_distance, (one, other)))
    return smaller >= SHARE * larger


def _distance(failure: Failure) -> float:
    """In ULPs. Infinities and NaN are text in evidence, and integers have none."""
    found = failure.evidence.get("ulps")
    return min(float(found), MOST) if isinstance(found, int | float) else MOST
