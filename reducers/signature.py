"""What makes two failures one: stage, outcome, kind, error class, op, and the message without its particulars."""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass

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

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that name it in file names."""
        return hashlib.sha256("\0".join(astuple(self)).encode("utf-8", "surrogatepass")).hexdigest()[:8]

    def __str__(self) -> str:
        head = f"{self.outcome}{f' ({self.kind})' if self.kind else ''} at {self.stage}"
        tail = " ".join(part for part in (self.op, f"{self.error}:" if self.error else "", self.message) if part)
        return f"{head}: {tail}" if tail else head


def signature(verdict: Verdict) -> Signature:
    """Return the signature of a verdict.

    A mismatch is identified by its kind alone, and where that is a later call by what was other in it: its message
    speaks of elements and distances, which are what a reduction changes.
    """
    stage, outcome = str(verdict.stage), str(verdict.outcome)
    if verdict.outcome in (Outcome.MISMATCH, Outcome.ILL_CONDITIONED, Outcome.PASS):
        calls = verdict.evidence.get(CALLS) if verdict.kind == Kind.LATER_CALL else None
        return Signature(stage, outcome, str(verdict.kind), message=str(calls[-1]) if calls else "")
    found = _CLASS.match(verdict.message)
    error = str(verdict.evidence.get("class") or (found[1] if found else ""))
    op = str(verdict.evidence.get("op") or "")
    return Signature(stage, outcome, str(verdict.kind), error, op, normalize(verdict.message))
