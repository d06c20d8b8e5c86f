"""The failures of one op, sorted by what the input has to be like for them.

Where every program calls the same op, the ops tell nothing of which bug a failure is. What tells is what the reduced
case does not fail without: that a tensor is empty, 0-d or not contiguous, a number NaN, that there is a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchstone.conformance.execution.later_calls import first_call_of, shows_at_first_call
from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case
from torchstone.fuzz.cause import Cause, essential_traits
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.fuzz.traits import CHANGES, traits
from torchstone.reducers.asking import Asking
from torchstone.reducers.signature import Signature, signature

MOST_REDUCED = 10
"""Reductions of one op: failures beyond them are counted only."""


class Causes(Findings):
    """Findings of one op. A failure belongs to a known one if it has all that this one's reduced case needs."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        self._reductions = 0

    def explain(self, finding: FuzzFinding, right: Iterable[Case]) -> Asking[None]:
        """Find what the reduced case needs; no other op is there to be asked. What cannot be taken away is needed."""
        first = finding.reduction.verdict if finding.reduction else finding.verdict
        same = (first.outcome, first.kind)
        case = first_call_of(finding.best) if shows_at_first_call(first) else finding.best
        found = yield from essential_traits(case, lambda its: (its.outcome, its.kind) == same)
        finding.cause = Cause(finding.ops, found | (traits(finding.best) - CHANGES.keys()))

    def add(self, finding: FuzzFinding) -> FuzzFinding:
        """Take up a new finding, unless it needs all that a known one does: then that is returned, counted once more.

        It takes the place of known ones that need more.
        """
        self._reductions += 1
        its = needs(finding)
        alike = [one for one in self._found if _alike(one.signature, finding.signature) and one.ops == finding.ops]
        for known in alike:
            if needs(known) <= its:
                known.seen += finding.seen
                return known
        for known in alike:
            if its < needs(known):
                finding.seen += known.seen
                self._found.remove(known)
        numbers = (str(number) for number in range(2, len(self._names) + 3))
        while finding.name in self._names:
            finding.suffix = next(numbers)
        self._names.add(finding.name)
        self._found.append(finding)
        return finding

    def unexplained(self, case: Case, verdict: Verdict) -> Asking[Case | None]:
        """The case, unless a known finding explains it, or enough were reduced."""
        yield from ()
        found, its = signature(verdict), traits(case)
        same = [known for known in self._found if _alike(known.signature, found)]
        for known in same:
            if needs(known) <= its:
                known.seen.append(case.id)
                return None
        if self._reductions >= MOST_REDUCED and same:
            same[0].seen.append(case.id)
            return None
        return case


def needs(finding: FuzzFinding) -> frozenset[str]:
    """The traits that a finding needs, as far as is known."""
    return traits(finding.best) if finding.cause is None else finding.cause.traits


def _alike(one: Signature, other: Signature) -> bool:
    """Whether two failures of one op are of a kind.

    How a number is wrong may hang on the input: a maximum that loses NaN gives a number, and -inf where there is none.
    """
    return replace(one, wrong="") == replace(other, wrong="")
