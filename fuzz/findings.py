"""Failures sorted into findings: which of them are one bug, and which finding matters most."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchstone.conformance.escape import file_name
from torchstone.conformance.execution.later_calls import first_call_of, shows_at_first_call
from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call
from torchstone.fuzz.cause import Cause, find_cause, operators
from torchstone.fuzz.traits import traits, without
from torchstone.reducers.asking import Asking, verdict_of
from torchstone.reducers.edit import has_special_values
from torchstone.reducers.failure import Reduction
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

_WRONG_NUMBERS = {Kind.VALUE, Kind.DISTRIBUTION}

_OF_A_TRAIT = _WRONG_NUMBERS | {Kind.MUTATION}
"""What an op makes of an input that it takes for another: a result, or what it writes."""

SURE = 3
"""Cases that failed of a cause before it is left out of what is generated."""


@dataclass
class FuzzFinding:
    """One bug, as far as is known: the first case that showed it, its reduction, and the other cases that show it.

    Since the cause is known, ``asked`` cases had it, of which ``failed`` did, and ``left_out`` were not asked for it.
    ``relatives`` are other operators that fail in the same way in the place of its own.
    ``record`` is what an earlier part of the campaign, or one before it, wrote about it; ``known`` is one that was
    known before the campaign.
    """

    signature: Signature
    case: Case
    verdict: Verdict
    reduction: Reduction | None = None
    seen: list[str] = field(default_factory=list)
    folder: Path | None = None
    script: ScriptRun | None = None
    suffix: str = ""
    cause: Cause | None = None
    asked: int = 0
    failed: int = 0
    left_out: int = 0
    relatives: set[str] = field(default_factory=set)
    record: dict[str, Any] = field(default_factory=dict)
    known: bool = False

    @property
    def best(self) -> Case:
        """The smallest case there is of it."""
        return self.reduction.case if self.reduction else self.case

    @property
    def is_whole(self) -> bool:
        """Whether its reduction was cut off before anything was taken away: any part of the case may be what fails."""
        return self.reduction is None or not (self.reduction.complete or self.reduction.steps)

    @property
    def is_sure(self) -> bool:
        """Whether its cause makes a case fail: that was tried of a trait; of an op, most cases that call it failed."""
        if self.cause is None:
            return False
        return not self.cause.ops or (self.failed >= SURE and 2 * self.failed >= self.asked)

    @property
    def ops(self) -> frozenset[str]:
        """The operators that its smallest case calls: an op and its in-place form are one."""
        return operators(self.best)

    @property
    def name(self) -> str:
        """A folder name that stays the same from campaign to campaign."""
        ops = "-".join(_short(call) for call in self.best.program.calls[:3])
        outcome = self.signature.outcome
        return file_name(outcome, ops, self.signature.digest, *([self.suffix] if self.suffix else []))

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        if self.reduction:
            found = summary(self.reduction)
        else:
            found = self.record or {"message": self.verdict.message, **measure_case(self.case)}
        return {
            **found,
            "name": self.name,
            "signature": str(self.signature),
            "signature_parts": asdict(self.signature),
            "blames": sorted(self.ops if self.cause is None else self.cause.ops),
            **({"relatives": sorted(self.relatives)} if self.relatives else {}),
            "seen": len(self.seen),
            "cases": self.seen,
            **(self._cause() if self.cause else {}),
            **({"script": asdict(self.script)} if self.script else {}),
        }

    def _cause(self) -> dict[str, Any]:
        assert self.cause is not None
        parts = {"ops": sorted(self.cause.ops), "traits": sorted(self.cause.traits)}
        counts = {"asked": self.asked, "failed": self.failed, "left_out": self.left_out}
        return {"cause": str(self.cause), "cause_parts": parts, **counts}


def _short(call: Call) -> str:
    """What a call is named by in a folder's name: an operator without its overload."""
    return call.operator.replace("::", ".") if call.target.startswith("torch.ops.") else call.target.rpartition(".")[2]


class Findings:
    """All findings of a campaign."""

    def __init__(self) -> None:
        self._found: list[FuzzFinding] = []

    def __len__(self) -> int:
        return sum(not finding.known for finding in self._found)

    @property
    def known(self) -> list[FuzzFinding]:
        """Those that were known before the campaign."""
        return [finding for finding in self._found if finding.known]

    def ranked(self) -> list[FuzzFinding]:
        """Return the findings of the campaign, the worst and then the most frequent first."""
        rank = {str(outcome): at for at, outcome in enumerate(SEVERITY)}
        new = [finding for finding in self._found if not finding.known]
        return sorted(new, key=lambda f: (rank.get(f.signature.outcome, len(rank)), -len(f.seen), f.name))

    def add(self, finding: FuzzFinding) -> FuzzFinding:
        """Take up a new finding, unless it turns out to be a known one: then that is returned, counted once more.

        A cause that is any op's is the known one's from then on.
        """
        for known in self._found:
            if _same(known, finding):
                known.seen += finding.seen
                if finding.cause is not None and not finding.cause.ops:
                    known.cause = finding.cause
                return known
        self._found.append(finding)
        return finding

    def has_alike(self, finding: FuzzFinding) -> bool:
        """Whether a finding of before has the symptom of this new one, which does not say what is at fault.

        What did not fail again when it was to be reduced is flaky by then, whatever its symptom was.
        """
        alike = any(_alike(known.signature, finding.signature) for known in self._found)
        return alike and finding.verdict.outcome in WITHOUT_CULPRIT

    def restore(self, finding: FuzzFinding) -> None:
        """Take up a finding of an earlier part of the campaign, or of one before it, as it is."""
        self._found.append(finding)

    def explain(self, finding: FuzzFinding, right: Iterable[Case]) -> Asking[None]:
        """Find the cause of a new finding; ``right`` are programs that did not fail."""
        first = finding.reduction.verdict if finding.reduction else finding.verdict
        same = (first.outcome, first.kind)
        case = first_call_of(finding.best) if shows_at_first_call(first) else finding.best
        finding.cause = yield from find_cause(case, right, lambda its: (its.outcome, its.kind) == same)

    def note(self, case: Case, verdict: Verdict) -> None:
        """Take note of what became of a case: how surely it fails that has a known cause."""
        for known in self._found:
            if known.cause is not None and known.cause.is_in(case):
                known.asked += 1
                known.failed += verdict.failed

    def spared(self, case: Case, kept: Collection[str] = ()) -> Case | None:
        """Return the case without the known causes that would make it fail; None where nothing else is left of it.

        A trait is taken away; of an op, what eager computes for it becomes an input. ``kept`` are ops that programs
        are to call, whatever is known of them.
        """
        for known in self._found:
            if not known.is_sure or known.cause is None or not known.cause.is_in(case):
                continue
            if known.cause.ops and known.cause.ops <= set(kept):
                continue
            known.left_out += 1
            rest = _without(case, known)
            if rest is None or has_special_values(rest) is not has_special_values(case):
                return None
            case = rest
        return case

    def unexplained(self, case: Case, verdict: Verdict) -> Asking[Case | None]:
        """Return what of a failing case no known finding explains, None if one explains all of it.

        An error that names its op is known by its signature. A wrong result or a crash is blamed on a known finding if
        the program calls that finding's ops; to see whether it hides another bug, those calls are replaced by inputs,
        and what is left is tried again.
        """
        found = signature(verdict)
        same = [known for known in self._found if _alike(known.signature, found)]
        if not same:
            return case
        if verdict.outcome not in WITHOUT_CULPRIT:
            same[0].seen.append(case.id)
            return None
        called = operators(case)
        suspects = [
            known
            for known in same
            if known.ops <= called or known.relatives & called or (known.cause and known.cause.is_in(case))
        ]
        if not suspects and (known := (yield from _with_a_relative(same, case))) is not None:
            suspects = [known]
        if not suspects:
            return case
        rest: Case | None = case
        for known in suspects:
            rest = _without(rest, known) if rest is not None else None
        if rest is not None:
            verdict = yield from verdict_of(rest)
            if _alike(signature(verdict), found):
                return rest
        suspects[0].seen.append(case.id)
        return None


def _alike(one: Signature, other: Signature) -> bool:
    """Whether two failures have the same symptom. Behind a random op, wrong numbers are a wrong distribution."""
    return one == other or ({one.kind, other.kind} <= _WRONG_NUMBERS and one.stage == other.stage)


def _same(known: FuzzFinding, finding: FuzzFinding) -> bool:
    """Whether two findings are one bug: they fail alike, and one's cause is the other's, or a part of it."""
    kinds = {known.signature.kind, finding.signature.kind}
    if known.signature.outcome != finding.signature.outcome or not (len(kinds) == 1 or kinds <= _OF_A_TRAIT):
        return False
    causes = [one.cause for one in (known, finding) if one.cause is not None]
    if len(causes) == 2 and not (causes[0].ops and causes[1].ops):
        wide, other = sorted(causes, key=lambda cause: (len(cause.ops), len(cause.traits)))
        return wide.traits <= other.traits
    if known.signature != finding.signature or known.ops != finding.ops:
        return False
    if known.cause is None or finding.cause is None:
        return True
    return known.cause.traits <= finding.cause.traits or finding.cause.traits <= known.cause.traits


def _without(case: Case, known: FuzzFinding) -> Case | None:
    """The case without what a finding's cause is, as far as is known; None where nothing is left of it."""
    if known.cause is not None and not known.cause.ops:
        return without(case, known.cause.traits & traits(case))
    ops = known.ops | known.relatives
    return cut(case, {call.result for call in case.program.calls if call.operator in ops})


def _with_a_relative(same: Iterable[FuzzFinding], case: Case) -> Asking[FuzzFinding | None]:
    """The finding of one call in whose place a call of the case fails alike: then both have one cause.

    Wrong numbers are left out: those of two ops are wrong alike by chance, or by two faults.
    """
    for known in same:
        calls = known.best.program.calls
        if len(calls) != 1 or known.signature.kind in _WRONG_NUMBERS or known.signature.kind == Kind.LATER_CALL:
            continue
        for call in case.program.calls:
            if call.operator in known.ops or call.target.startswith("torch.Tensor."):
                continue
            program = replace(known.best.program, calls=(replace(calls[0], target=call.target),))
            changed = known.best.replace(program=program)
            if has_special_values(changed) is None:  # eager does not take it
                continue
            verdict = yield from verdict_of(changed)
            if _alike(known.signature, signature(verdict)):
                known.relatives.add(call.operator)
                return known
    return None
