"""A fuzzing campaign: programs from a seeded stream, tried until the time is up, failures triaged as they come."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.fuzz.bundles import verdicts
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.fuzz.generator.generate import Drafts
from torchstone.fuzz.generator.rules import OpRule
from torchstone.fuzz.generator.variants import nth_case
from torchstone.fuzz.guidance import Guidance
from torchstone.fuzz.saved import save
from torchstone.fuzz.vocabulary import Vocabulary
from torchstone.reducers import failure
from torchstone.reducers.engine import Budget
from torchstone.reducers.signature import signature
from torchstone.reducers.write import CASE, SUMMARY, confirm_script, write_reduction

UNSTABLE = frozenset({Outcome.FLAKY, Outcome.HARNESS_ERROR})
"""Failures that do not come back on demand, so that there is no reducing them."""

SAVE_SECONDS = 5.0
"""How often what was done is written down: that much of it may be done again after a sudden end."""

REMEMBERED = 64
"""Programs that did not fail, kept to be tried with what a finding has."""

DEADLY = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM})
"""Failures that cost a worker its life."""


@dataclass(frozen=True)
class CampaignOptions:
    """What a campaign does.

    ``pool``: ops to build programs of, all if empty; ``must``: ops of which every program calls one; ``programs``: how
    many at most; ``python``: the interpreter of the backend, this one if None; ``reduce_seconds`` bounds the reduction
    of one finding. The stream of programs depends on ``seed``, ``pool``, ``must``, ``max_ops`` and ``specials`` (nan,
    inf and -0 in the inputs) alone, but for causes that are known by then and left out; if it is ``guided``, on what
    earlier programs had and what became of them, too.
    """

    backend: str
    seconds: float
    seed: int
    out: Path
    pool: tuple[OpRule, ...] = ()
    must: tuple[OpRule, ...] = ()
    max_ops: int = 5
    jobs: int = 1
    timeout: float = 60.0
    programs: int | None = None
    reduce_seconds: float = 60.0
    specials: bool = False
    python: str | None = None
    guided: bool = True


@dataclass
class Tally:
    """What a campaign did so far. ``outcomes`` counts programs by verdict, ``left_out`` those not asked at all.

    ``next`` is the number of the first program that has no verdict yet, ``drawn`` of the first that was not made,
    ``pending`` are those that wait for theirs; ``earlier`` the seconds before the campaign was stopped and gone on
    with; ``right`` are the last programs that did not fail.
    """

    started: float = field(default_factory=time.monotonic)
    earlier: float = 0.0
    next: int = 0
    drawn: int = 0
    tried: int = 0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reached: Vocabulary = field(default_factory=Vocabulary)
    drafts: Drafts = field(default_factory=Drafts)
    guidance: Guidance = field(default_factory=Guidance)
    dtypes: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    right: deque[Case] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    pending: list[int] = field(default_factory=list)
    reducing: str = ""
    interrupted: bool = False

    def answered(self, index: int) -> None:
        """Take note that a program has its verdict, or needs none."""
        self.pending.remove(index)
        self.next = min(self.pending, default=self.drawn)

    @property
    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Programs a second."""
        return self.tried / max(self.seconds, 1e-9)


def run_campaign(
    plan: CampaignOptions, progress: Callable[[Tally], None] = lambda tally: None, tally: Tally | None = None
) -> Tally:
    """Run a campaign, or go on with one: ``tally`` has what it did. Ctrl-C ends it early.

    A folder per finding is written to ``plan.out`` as it is found, and ``campaign.json`` every few seconds. Raises
    InputError when the folder cannot be written, HarnessError when the backend's workers cannot start.
    """
    prepare_folder(plan.out)
    tally = Tally() if tally is None else tally
    saved = tally.seconds
    with _pool(plan, lambda: progress(tally)) as pool:
        try:
            for case, verdict in verdicts(pool, _stream(plan, tally)):
                count(tally, case, verdict)
                tally.guidance.learn(case, verdict)
                tally.findings.note(case, verdict)
                if verdict.failed:
                    triage(plan, tally, pool, case, verdict, progress)
                    saved = -SAVE_SECONDS
                elif verdict.outcome in CORRECT:
                    tally.right.append(case)
                tally.answered(case.index)
                if tally.seconds - saved > SAVE_SECONDS:
                    saved = tally.seconds
                    save(plan, tally, finished=False)
                progress(tally)
        except KeyboardInterrupt:
            tally.interrupted = True
    save(plan, tally, finished=not tally.interrupted)
    return tally


def _pool(plan: CampaignOptions, tick: Callable[[], None]) -> Pool:
    return Pool(plan.backend, python=plan.python, jobs=plan.jobs, timeout=plan.timeout, tick=tick)


def _stream(plan: CampaignOptions, tally: Tally) -> Iterator[Case]:
    """The programs that have no verdict yet, without the causes that are known."""
    asked_for = {rule.target for rule in plan.must}
    for index in itertools.count(tally.next):
        if tally.seconds >= plan.seconds or (plan.programs is not None and index >= plan.programs):
            return
        case = nth_case(
            plan.seed,
            index,
            plan.pool,
            plan.max_ops,
            plan.must,
            plan.specials,
            tally.drafts,
            tally.guidance if plan.guided else None,
        )
        case = tally.findings.spared(case, asked_for)
        tally.drawn = index + 1
        tally.pending.append(index)
        if case is not None:
            yield case
        else:
            tally.left_out += 1
            tally.answered(index)


def count(tally: Tally, case: Case, verdict: Verdict) -> None:
    """Count a program that was tried."""
    tally.tried += 1
    tally.outcomes[str(verdict.outcome)] += 1
    tally.dtypes[case.dtype] += 1
    tally.reached.add(case)


def triage(
    plan: CampaignOptions, tally: Tally, pool: Pool, case: Case, verdict: Verdict, progress: Callable[[Tally], None]
) -> None:
    """Reduce a failure that no known finding explains; with no time left, keep it as it is."""
    rest = tally.findings.unexplained(case, verdict, pool.verdict)
    if rest is None:
        return
    finding = FuzzFinding(signature(verdict), rest, verdict, seen=[case.id])
    left = max(plan.seconds - tally.seconds, 10.0)
    interrupted = False
    if verdict.outcome not in UNSTABLE:
        tally.reducing = str(finding.signature)
        try:
            finding.reduction = failure.reduce_case(
                rest,
                plan.backend,
                budget=Budget(seconds=min(plan.reduce_seconds, left)),
                timeout=plan.timeout,
                python=plan.python,
                # The campaign's workers are warm, but they try what kills them a second time.
                judge=None if verdict.outcome in DEADLY else pool.verdict,
                progress=lambda step: progress(tally),
            )
        except InputError as error:
            finding.verdict = _unstable(verdict, str(error))
        except KeyboardInterrupt:
            interrupted = True
        else:
            tally.findings.explain(finding, reversed(tally.right), pool.verdict)
        tally.reducing = ""
    kept = tally.findings.add(finding)
    if kept is finding:
        finding.folder = plan.out / finding.name
        _write(finding, plan.python)
    if interrupted:
        raise KeyboardInterrupt


def _unstable(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, outcome=Outcome.FLAKY, message=f"{verdict.message} (not reduced: {why})")


def _write(finding: FuzzFinding, python: str | None) -> None:
    assert finding.folder is not None
    if finding.reduction:
        write_reduction(finding.reduction, finding.folder)
        finding.script = confirm_script(finding.reduction, finding.folder, python)
    else:
        finding.folder.mkdir(parents=True, exist_ok=True)
        finding.case.save(finding.folder / CASE)
        (finding.folder / SUMMARY).write_text(json.dumps(finding.to_json(), indent=2) + "\n", encoding="utf-8")
