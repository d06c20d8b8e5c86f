"""The failures of one op, sorted by what the input has to be like for them.

Where every program calls the same op, the ops tell nothing of which bug a failure is. What tells is what the reduction
could not take away: that a tensor is empty, 0-d or not contiguous, that a number is NaN, that there is a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.fuzz.traits import traits
from torchstone.reducers.asking import Asking
from torchstone.reducers.signature import Signature, signature

MOST_REDUCED = 10
"""Reductions of one op: failures beyond them are counted only."""


class Causes(Findings):
    """Findings of one op. A failure belongs to a known one if it has all that this one's reduced case needs."""

    def __init__(self) -> None:
        super().__init__()
        self._needs: dict[int, frozenset[str]] = {}
        self._reductions = 0

    def explain(self, finding: FuzzFinding, right: Iterable[Case]) -> Asking[None]:
        """Leave the cause open: what a case needs is told by ``add``, and no other op is there to be asked."""
        yield from ()

    def add(self, finding: FuzzFinding) -> FuzzFinding:
        """Take up a new finding, unless its reduced case is like that of a known one."""
        self._reductions += 1
        its = traits(finding.best)
        for known in self.ranked():
            alike = _alike(known.signature, finding.signature) and known.ops == finding.ops
            if alike and traits(known.best) == its:
                # What one of the two originals does not have is no part of the cause: the reduction chose it.
                self._needs[id(known)] &= traits(finding.case)
                known.seen += finding.seen
                return known
        self._needs[id(finding)] = its
        taken = {known.name for known in self.ranked()}
        numbers = (str(number) for number in range(2, len(taken) + 3))
        while finding.name in taken:
            finding.suffix = next(numbers)
        self._found.append(finding)
        return finding

    def unexplained(self, case: Case, verdict: Verdict) -> Asking[Case | None]:
        """The case, unless a known finding explains it, or enough were reduced."""
        yield from ()
        found, its = signature(verdict), traits(case)
        same = [known for known in self._found if _alike(known.signature, found)]
        for known in same:
            if self._needs[id(known)] <= its:
                known.seen.append(case.id)
                return None
        if self._reductions >= MOST_REDUCED and same:
            same[0].seen.append(case.id)
            return None
        return case


def _alike(one: Signature, other: Signature) -> bool:
    """Whether two failures of one op are of a kind.

    How a number is wrong may hang on the input: a maximum that loses NaN gives a number, and -inf where there is none.
    """
    return replace(one, wrong="") == replace(other, wrong="")
