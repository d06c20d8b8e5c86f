"""A fuzzing campaign: programs from a seeded stream, tried until the time is up, failures triaged as they come."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.fuzz.generator.rules import OpRule
from torchstone.fuzz.generator.variants import nth_case
from torchstone.reducers import failure
from torchstone.reducers.engine import Budget
from torchstone.reducers.signature import signature
from torchstone.reducers.write import CASE, SUMMARY, confirm_script, write_reduction

UNSTABLE = frozenset({Outcome.FLAKY, Outcome.HARNESS_ERROR})
"""Failures that do not come back on demand, so that there is no reducing them."""

DEADLY = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM})
"""Failures that cost a worker its life."""


@dataclass(frozen=True)
class CampaignOptions:
    """What a campaign does.

    ``pool``: ops to build programs of, all if empty; ``must``: ops of which every program calls one; ``programs``: how
    many at most; ``reduce_seconds`` bounds the reduction of one finding. The stream of programs depends on ``seed``,
    ``pool``, ``must``, ``max_ops`` and ``specials`` (nan, inf and -0 in the inputs) alone.
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


@dataclass
class Tally:
    """What a campaign did so far. ``ops`` counts calls by public name, ``outcomes`` programs by verdict."""

    started: float = field(default_factory=time.monotonic)
    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    reducing: str = ""
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Programs a second."""
        return self.tried / max(self.seconds, 1e-9)


def run_campaign(plan: CampaignOptions, progress: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Run a campaign. Ctrl-C ends it early and keeps what was found.

    A folder per finding is written to ``plan.out`` as it is found, and ``campaign.json`` at the end. Raises InputError
    when the folder cannot be written, HarnessError when the backend's workers cannot start.
    """
    prepare_folder(plan.out)
    tally = Tally()
    with Pool(plan.backend, jobs=plan.jobs, timeout=plan.timeout, tick=lambda: progress(tally)) as pool:
        try:
            for result in pool.results(_stream(plan, tally)):
                count(tally, result.case, result.verdict)
                if result.verdict.failed:
                    triage(plan, tally, pool, result.case, result.verdict, progress)
                progress(tally)
        except KeyboardInterrupt:
            tally.interrupted = True
    (plan.out / "campaign.json").write_text(json.dumps(summary(plan, tally), indent=2) + "\n", encoding="utf-8")
    return tally


def _stream(plan: CampaignOptions, tally: Tally) -> Iterator[Case]:
    index = 0
    while tally.seconds < plan.seconds and (plan.programs is None or index < plan.programs):
        yield nth_case(plan.seed, index, plan.pool, plan.max_ops, plan.must, plan.specials)
        index += 1


def count(tally: Tally, case: Case, verdict: Verdict) -> None:
    """Count a program that was tried."""
    tally.tried += 1
    tally.outcomes[str(verdict.outcome)] += 1
    tally.dtypes[case.dtype] += 1
    tally.ops.update(call.target for call in case.program.calls)


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
                # The campaign's workers are warm, but they try what kills them a second time.
                judge=None if verdict.outcome in DEADLY else pool.verdict,
                progress=lambda step: progress(tally),
            )
        except InputError as error:
            finding.verdict = _unstable(verdict, str(error))
        except KeyboardInterrupt:
            interrupted = True
        tally.reducing = ""
    kept = tally.findings.add(finding)
    if kept is finding:
        finding.folder = plan.out / finding.name
        _write(finding)
    if interrupted:
        raise KeyboardInterrupt


def _unstable(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, outcome=Outcome.FLAKY, message=f"{verdict.message} (not reduced: {why})")


def _write(finding: FuzzFinding) -> None:
    assert finding.folder is not None
    if finding.reduction:
        write_reduction(finding.reduction, finding.folder)
        finding.script = confirm_script(finding.reduction, finding.folder)
    else:
        finding.folder.mkdir(parents=True, exist_ok=True)
        finding.case.save(finding.folder / CASE)
        (finding.folder / SUMMARY).write_text(json.dumps(finding.to_json(), indent=2) + "\n", encoding="utf-8")


def summary(plan: CampaignOptions, tally: Tally) -> dict[str, Any]:
    """Return a campaign as JSON values."""
    return {
        "backend": plan.backend,
        "seed": plan.seed,
        "max_ops": plan.max_ops,
        "special_values": plan.specials,
        "pool": [rule.op for rule in plan.pool],
        "must": [rule.op for rule in plan.must],
        "seconds": round(tally.seconds, 3),
        "interrupted": tally.interrupted,
        "programs": tally.tried,
        "outcomes": dict(tally.outcomes),
        "op_kinds": len(tally.ops),
        "ops": dict(tally.ops.most_common()),
        "dtypes": dict(tally.dtypes.most_common()),
        "findings": [finding.to_json() for finding in tally.findings.ranked()],
    }
