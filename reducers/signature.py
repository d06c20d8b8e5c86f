"""What makes two failures one: stage, outcome, kind, how a number is wrong, error class, op, and the plain message.

The place of a failure is no part of it, since outputs that go away renumber the others: see ``lineage``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass
from typing import Any

from torchstone.conformance.execution.later_calls import CALLS
from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict
from torchstone.reducers.message import normalize

_CLASS = re.compile(r"\s*(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Unsupported))\b")


@dataclass(frozen=True, order=True)
class Signature:
    """The identity of a failure. A reduction keeps it, a campaign counts by it; two stages never share one."""

    stage: str
    outcome: str
    kind: str = ""
    error: str = ""
    op: str = ""
    message: str = ""
    wrong: str = ""

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that name it in file names."""
        return hashlib.sha256("\0".join(astuple(self)).encode("utf-8", "surrogatepass")).hexdigest()[:8]

    def __str__(self) -> str:
        kind = ": ".join(part for part in (self.kind, self.wrong) if part)
        head = f"{self.outcome}{f' ({kind})' if kind else ''} at {self.stage}"
        tail = " ".join(part for part in (self.op, f"{self.error}:" if self.error else "", self.message) if part)
        return f"{head}: {tail}" if tail else head


def signature(verdict: Verdict) -> Signature:
    """Return the signature of a verdict.

    A mismatch is identified by its kind, by how its worst number is wrong, and where that is a later call by what was
    other in it: its message speaks of elements and distances, which are what a reduction changes.
    """
    stage, outcome = str(verdict.stage), str(verdict.outcome)
    if verdict.outcome in (Outcome.MISMATCH, Outcome.ILL_CONDITIONED, Outcome.PASS):
        calls = verdict.evidence.get(CALLS) if verdict.kind == Kind.LATER_CALL else None
        said = str(calls[-1]) if calls else ""
        return Signature(stage, outcome, str(verdict.kind), message=said, wrong=how_wrong(verdict))
    found = _CLASS.match(verdict.message)
    error = str(verdict.evidence.get("class") or (found[1] if found else ""))
    op = str(verdict.evidence.get("op") or "")
    return Signature(stage, outcome, str(verdict.kind), error, op, normalize(verdict.message))


_EXACT = {"the sign of zero", "the sign of NaN"}
_JUDGED = (Kind.VALUE, Kind.MUTATION, Kind.LATER_CALL)


def how_wrong(verdict: Verdict) -> str:
    """Return how the worst number of a verdict is wrong: empty for a number that is another number.

    NaN and infinities come from other faults than wrong digits do, and so do a sign that is lost, a rounding that is
    off by one and a write where nothing should be written.
    """
    evidence = verdict.evidence
    if verdict.kind not in _JUDGED:
        return ""
    if "bytes" in evidence:
        return "a stray write"
    note = evidence.get("note")
    if isinstance(note, str) and note in _EXACT:
        return note
    if isinstance(note, str) and note.startswith("one operation"):
        return "the last bit"
    if "expected" not in evidence or "actual" not in evidence:
        return ""
    return contrast(evidence["expected"], evidence["actual"])


def contrast(expected: Any, actual: Any) -> str:
    """Return what two numbers, or texts of them, are to each other, as ``NaN for a number``; nothing for two alike."""
    wanted, found = _class(expected), _class(actual)
    return "" if wanted == found else f"{found} for {wanted}"


def _class(value: Any) -> str:
    text = str(value)
    return "NaN" if "nan" in text else "infinity" if "inf" in text else "a number"
