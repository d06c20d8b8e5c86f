"""Failures sorted into findings: which of them are one bug, and which finding matters most."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchstone.conformance.escape import file_name
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call
from torchstone.reducers.failure import Judge, Reduction
from torchstone.reducers.passes.cut_to_inputs import cut
from torchstone.reducers.script_run import ScriptRun
from torchstone.reducers.signature import Signature, signature
from torchstone.reducers.write import measure_case, summary

SEVERITY = (
    Outcome.CRASH,
    Outcome.MISMATCH,
    Outcome.OOM,
    Outcome.TIMEOUT,
    Outcome.ERROR,
    Outcome.FLAKY,
    Outcome.HARNESS_ERROR,
)
"""Failures, worst first: what a list of findings is ranked by."""

WITHOUT_CULPRIT = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM})
"""Outcomes that do not say which op is at fault: two of these are one bug only if the same ops are."""


@dataclass
class FuzzFinding:
    """One bug, as far as is known: the first case that showed it, its reduction, and the other cases that show it."""

    signature: Signature
    case: Case
    verdict: Verdict
    reduction: Reduction | None = None
    seen: list[str] = field(default_factory=list)
    folder: Path | None = None
    script: ScriptRun | None = None
    suffix: str = ""

    @property
    def best(self) -> Case:
        """The smallest case there is of it."""
        return self.reduction.case if self.reduction else self.case

    @property
    def ops(self) -> frozenset[str]:
        """The public names its smallest case calls."""
        return frozenset(call.target for call in self.best.program.calls)

    @property
    def name(self) -> str:
        """A folder name that stays the same from campaign to campaign."""
        ops = "-".join(_short(call) for call in self.best.program.calls[:3])
        outcome = self.signature.outcome
        return file_name(outcome, ops, self.signature.digest, *([self.suffix] if self.suffix else []))

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        found = (
            summary(self.reduction) if self.reduction else {"message": self.verdict.message, **measure_case(self.case)}
        )
        return {
            "name": self.name,
            "signature": str(self.signature),
            "seen": len(self.seen),
            "cases": self.seen,
            **found,
            **({"script": asdict(self.script)} if self.script else {}),
        }


def _short(call: Call) -> str:
    """What a call is named by in a folder's name: an operator without its overload."""
    return call.operator.replace("::", ".") if call.target.startswith("torch.ops.") else call.target.rpartition(".")[2]


class Findings:
    """All findings of a campaign."""

    def __init__(self) -> None:
        self._found: list[FuzzFinding] = []

    def __len__(self) -> int:
        return len(self._found)

    def ranked(self) -> list[FuzzFinding]:
        """Return the findings, the worst and then the most frequent first."""
        rank = {str(outcome): at for at, outcome in enumerate(SEVERITY)}
        return sorted(self._found, key=lambda f: (rank.get(f.signature.outcome, len(rank)), -len(f.seen), f.name))

    def add(self, finding: FuzzFinding) -> FuzzFinding:
        """Take up a new finding, unless it turns out to be a known one: then that is returned, counted once more."""
        for known in self._found:
            if known.signature == finding.signature and known.ops == finding.ops:
                known.seen += finding.seen
                return known
        self._found.append(finding)
        return finding

    def unexplained(self, case: Case, verdict: Verdict, judge: Judge) -> Case | None:
        """Return what of a failing case no known finding explains, None if one explains all of it.

        An error that names its op is known by its signature. A wrong result or a crash is blamed on a known finding if
        the program calls that finding's ops; to see whether it hides another bug, those calls are replaced by inputs,
        and what is left is tried again.
        """
        found = signature(verdict)
        same = [known for known in self._found if known.signature == found]
        if not same:
            return case
        if verdict.outcome not in WITHOUT_CULPRIT:
            same[0].seen.append(case.id)
            return None
        called = {call.target for call in case.program.calls}
        suspects = [known for known in same if known.ops <= called]
        if not suspects:
            return case
        blamed = frozenset().union(*(known.ops for known in suspects))
        rest = cut(case, {call.result for call in case.program.calls if call.target in blamed})
        if rest is not None and signature(judge(rest)) == found:
            return rest
        suspects[0].seen.append(case.id)
        return None
