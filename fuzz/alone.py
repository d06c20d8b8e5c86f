"""A campaign on one op: what it promises, and its cases in every variant, on a backend.

The cases are made in a fork of this process, as the workers try them: an op under development may end the process in
which eager runs it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.conformance.custom import source
from torchstone.conformance.custom.apart import Died, Made, Steps, stream
from torchstone.conformance.custom.checks import Complaint, check_op, fake_error
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import Trial
from torchstone.conformance.selection.plan import OpPlan
from torchstone.conformance.sources import load
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.fuzz.campaign import MOST_FAILURES, CampaignOptions, Tally, count, finish_scripts
from torchstone.fuzz.causes import Causes
from torchstone.fuzz.desk import Desk, Trying
from torchstone.fuzz.findings import FuzzFinding
from torchstone.fuzz.triage import Triage
from torchstone.reducers.write import prepare_folder

MOST_CASES = 4000
"""Cases of one op: far more than there is time for."""
CHECKS_SHARE = 0.25
"""Of the time, how much the op's own promises may take."""


@dataclass
class OpReport:
    """What is known of an op at the end of its campaign.

    ``dtypes`` maps each dtype that eager takes to what the samples of it are like; ``refused`` the others to why not.
    ``complaints`` are promises that the op itself breaks, ``variants`` the outcomes on the backend by variant.
    ``among`` is the campaign of programs that call it among others, or why there was none.
    """

    op: str
    source: str
    dtypes: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)
    variants: dict[str, Counter[str]] = field(default_factory=dict)
    unsupported: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=lambda: Tally(findings=Causes()))
    among: Tally | str = ""
    seconds: float = 0.0

    @property
    def findings(self) -> list[FuzzFinding]:
        """What was found, alone first; of the programs what is not the op's own bug again."""
        alone = self.tally.findings.ranked()
        known = {(finding.signature, finding.ops) for finding in alone}
        programs = self.among.findings.ranked() if isinstance(self.among, Tally) else []
        return alone + [finding for finding in programs if (finding.signature, finding.ops) not in known]

    @property
    def failed(self) -> bool:
        """Whether anything was wrong, of the op or of the backend."""
        return bool(self.findings) or any(complaint.blame for complaint in self.complaints)


def run_alone(
    plan: CampaignOptions, op: str, where: str = source.SOURCE, progress: Callable[[Tally], None] = lambda tally: None
) -> OpReport:
    """Ask an op of the source ``where`` alone, for ``plan.seconds`` or until nothing is left. Ctrl-C ends it early.

    A folder per finding is written to ``plan.out`` as it is found. Raises InputError for an op of which eager takes no
    sample, HarnessError when the backend's workers cannot start.
    """
    prepare_folder(plan.out)
    if where == source.SOURCE:
        source.prepare(op)
    report = OpReport(op, where)
    tally = report.tally
    made = stream(lambda steps: _cases(op, where, steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dtypes that PyTorch calls experimental
        try:
            _ask(report, plan, made, progress)
        except KeyboardInterrupt:
            tally.interrupted = True
        finally:
            made.close()
            report.seconds = tally.seconds
    return report


def _ask(
    report: OpReport, plan: CampaignOptions, made: Generator[Made | Died], progress: Callable[[Tally], None]
) -> None:
    _learn(report, made)
    tally = report.tally
    if report.source == source.SOURCE:
        seconds = plan.seconds * CHECKS_SHARE
        for complaint in check_op(source.op_of(report.op), list(report.dtypes), seconds):
            report.complaints.append(complaint)
            progress(tally)
    triage: Triage | None = None

    def tick() -> None:
        progress(tally)
        if triage is not None:
            triage.tick()

    def take(case: Case, verdict: Verdict) -> None:
        if (verdict.outcome, verdict.stage) == (Outcome.ERROR, Stage.CAPTURE) and (complaint := fake_error(case)):
            verdict = replace(verdict, outcome=Outcome.UNTESTED, message=complaint.message)  # no compiler captures it
            if complaint.kind not in {one.kind for one in report.complaints}:
                report.complaints.append(complaint)
        count(tally, case, verdict)
        report.variants.setdefault(case.variant, Counter())[str(verdict.outcome)] += 1
        if verdict.outcome == "unsupported":
            report.unsupported[verdict.message.split("\n", 1)[0]] += 1
        if verdict.failed and triage is not None:
            triage.add(case, verdict)

    def ask() -> bool:
        if triage and len(triage) >= MOST_FAILURES:
            return False
        case = next(cases, None)
        if case is not None:
            desk.drive(_one(case), lambda verdict: take(case, verdict))
        return case is not None

    cases = _until(tally, plan, _loaded(report, made))
    with Pool(plan.backend, python=plan.python, jobs=plan.jobs, timeout=plan.timeout, tick=tick) as pool:
        desk = Desk(pool)
        triage = Triage(plan, tally, desk, together=False)
        try:
            for _ in desk.serve(ask):
                progress(tally)
            finish_scripts(triage, tally, progress)
        except KeyboardInterrupt:
            triage.keep()
            raise
        finally:
            triage.close()


def _one(case: Case) -> Trying[Verdict]:
    return (yield Trial(case))


def _cases(op: str, where: str, steps: Steps) -> Iterator[Made]:
    """What is learned of the op's samples, under the empty key, and its cases as the bytes of files."""
    found = load(where)
    if not steps.begin("its samples"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dtypes = found.dtypes_of(op)
        samples = {dtype: list(found.iterate([op], [dtype])) for dtype in dtypes}
        facts = {dtype: _facts(entries) for dtype, entries in samples.items()}
        yield Made("", [facts, _refusals(op, where, dtypes)])

        def ask(case: Case, variant: str) -> Case | Untested:
            if steps.begin(f"{case.id}:{variant}", variant):
                return apply(case, variant)
            return Untested(case.source, case.op, case.dtype, "it ends the process", case.index, variant)

        cases = OpPlan(op, dtypes, list(VARIANTS.usable()), samples.__getitem__, ask=ask).cases(MOST_CASES)
        yield from (Made(case.id, data=case.to_bytes()) for case in cases if isinstance(case, Case))


def _facts(entries: list[Case | Untested]) -> dict[str, Any]:
    """What the samples of a dtype are like, as JSON values."""
    cases = [entry for entry in entries if isinstance(entry, Case)]
    return {
        "samples": len(cases),
        "ranks": sorted({tensor.dim() for case in cases for tensor in case.args}),
        "inputs": sorted({str(tensor.dtype).removeprefix("torch.") for case in cases for tensor in case.args}),
    }


def _refusals(op: str, where: str, taken: list[str]) -> dict[str, str]:
    """Why eager takes no sample of the other dtypes, as far as that is known."""
    return source.refusals(op, taken) if where == source.SOURCE else {}


def _learn(report: OpReport, made: Generator[Made | Died]) -> None:
    for found in made:
        if isinstance(found, Died):
            raise InputError(f"{report.op}: eager ends the process on its samples: it was {found.how}")
        report.dtypes, report.refused = found.told
        break
    if not report.dtypes:
        why = "; ".join(sorted(set(report.refused.values()))[:3])
        raise InputError(f"eager takes no sample of {report.op}: {why or 'there is none'}")


def _loaded(report: OpReport, made: Generator[Made | Died]) -> Iterator[Case]:
    for found in made:
        if isinstance(found, Died):
            message = f"eager ends the process: it was {found.how}"
            report.complaints.append(Complaint("survival", found.step, message))
        else:
            yield Case.from_bytes(found.data)


def _until(tally: Tally, plan: CampaignOptions, cases: Iterator[Case]) -> Iterator[Case]:
    """The cases until the time is up, or as many were tried as are wanted."""
    for number, case in enumerate(cases):
        if tally.seconds >= plan.seconds or (plan.programs is not None and number >= plan.programs):
            return
        yield case
