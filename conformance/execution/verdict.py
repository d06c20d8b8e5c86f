"""What became of one case on one backend: the stage it reached and one outcome; and which changes are regressions."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """How far the backend came with the case."""

    CAPTURE = "capture"
    LOWER = "lower"
    COMPILE = "compile"
    RUN = "run"
    COMPARE = "compare"


class Outcome(StrEnum):
    """The one enum of outcomes. ``untested`` and ``harness-error`` say nothing about the backend."""

    PASS = "pass"
    MISMATCH = "mismatch"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    FALLBACK = "fallback"
    ILL_CONDITIONED = "ill-conditioned"
    FLAKY = "flaky"
    UNTESTED = "untested"
    HARNESS_ERROR = "harness-error"


class Kind(StrEnum):
    """What differs when the outcome is ``mismatch``.

    ``aliasing``: memory is shared that eager gives fresh. ``distribution``: random numbers of another distribution.
    ``accepted``: a result, where eager refuses the inputs. ``leak``: each call keeps memory that it does not give back.
    ``later-call``: the example was right, and a call with other values or strides, or after another program, is not.
    """

    STRUCTURE = "structure"
    SHAPE = "shape"
    DTYPE = "dtype"
    DEVICE = "device"
    VALUE = "value"
    DISTRIBUTION = "distribution"
    MUTATION = "mutation"
    ALIASING = "aliasing"
    NONDETERMINISTIC = "nondeterministic"
    LATER_CALL = "later-call"
    ACCEPTED = "accepted"
    LEAK = "leak"


FAILURES = frozenset(
    {Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM, Outcome.ERROR, Outcome.FLAKY, Outcome.HARNESS_ERROR}
)
"""Outcomes that make a run fail when nothing declared them expected."""

NO_RESULT = (FAILURES - {Outcome.MISMATCH}) | {Outcome.UNSUPPORTED}
"""Outcomes of a program of which the backend gave no result."""

CORRECT = frozenset({Outcome.PASS, Outcome.FALLBACK})
"""Outcomes of a program that gave eager's results, by the backend's own code or not."""

EAGER_FURTHER = "eager_further"
"""The key in the evidence of a case in which eager is further from the float64 result than the backend."""

REFUSED = "refused"
"""The tag of a case that eager refuses."""

UNPROVEN = "unproven"
"""The key in the evidence of a pass of which nothing tells what ran: its value says what is missing."""


@dataclass(frozen=True)
class Verdict:
    """One row of a result store.

    ``kind`` is empty unless the outcome is ``mismatch``; ``evidence`` holds JSON values only; ``seconds`` is wall time.
    """

    case_id: str
    backend: str
    source: str
    op: str
    dtype: str
    variant: str
    stage: Stage
    outcome: Outcome
    kind: str = ""
    message: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether this outcome is one that fails a run."""
        return self.outcome in FAILURES

    def to_json(self) -> str:
        """The verdict as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Read what ``to_json`` wrote. Raises ``ValueError`` when a field is missing, unknown or of no known value."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "stage": Stage(fields["stage"]), "outcome": Outcome(fields["outcome"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a verdict: {error}") from error


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
