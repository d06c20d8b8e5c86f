"""The end of a run, and ``torchstone expect check``: what nobody expected, for people, JUnit and GitHub."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.output import TableFormat, say, show_table, write_raw
from torchstone.cli.paths import input_file, output_file
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import shell_command

if TYPE_CHECKING:
    from torchstone.conformance.expectations import CheckedVerdict, ExpectationFile, ExpectationReport
    from torchstone.conformance.store import RunRecord, Store
    from torchstone.reports.annotations import Annotation
    from torchstone.reports.junit import JunitTest

COLUMNS = ("kind", "backend", "case", "expected", "outcome", "message", "where")
SHOWN = 20


class Annotations(StrEnum):
    """For whom problems are annotated."""

    auto = "auto"
    github = "github"
    none = "none"


ExpectOption = Annotated[
    list[Path] | None,
    input_file("--expect", help="Expectation file of a backend: only what it does not expect fails; repeatable."),
]
JunitOption = Annotated[Path | None, output_file("--junit", help="Write the results as JUnit XML into this file.")]
AnnotationsOption = Annotated[
    Annotations,
    typer.Option(
        "--annotations",
        help="Print what fails as annotations: github, none, or auto (github where GITHUB_ACTIONS is set).",
        case_sensitive=False,
    ),
]


@dataclass(frozen=True)
class Baseline:
    """The expectations that a run is held against, and where the result is reported: JUnit XML, annotations."""

    files: tuple[ExpectationFile, ...] = ()
    junit: Path | None = None
    annotate: bool = False

    @classmethod
    def of(
        cls, expect: Sequence[Path] | None, junit: Path | None, annotations: Annotations,
        backends: Collection[str], whose: str,
    ) -> Baseline:  # fmt: skip
        """Read the files. Raises InputError for what cannot be used, before anything is run."""
        from torchstone.conformance.expectations import files_by_backend, load_expectations

        files = tuple(files_by_backend([load_expectations(path) for path in expect or ()], backends, whose).values())
        wanted = annotations is Annotations.github
        if annotations is Annotations.auto:
            wanted = os.environ.get("GITHUB_ACTIONS", "").lower() in ("true", "1")
        return cls(files, junit, wanted)

    def check(self, db: Store, record: RunRecord) -> ExpectationReport:
        """Hold a run that has ended against the baseline, write the JUnit file, and return the report."""
        from torchstone.conformance.expectations import check_run
        from torchstone.reports import junit

        report = check_run(db, record, self.files)
        if self.junit is not None:
            properties = {"run": record.run, "command": record.command, "device": record.device, **record.versions}
            tests = _tests(db, record, self.files, report)
            junit.write_junit(self.junit, tests, started=record.started, host=record.host or "", properties=properties)
        return report

    def annotations(self, record: RunRecord, report: ExpectationReport) -> list[str]:
        """Return the lines that annotate what is wrong, none when nobody wants them."""
        from torchstone.reports import annotations

        return list(annotations.annotation_lines(list(_problems(record, report)))) if self.annotate else []


def conclude_run(baseline: Baseline, db: Store, run: str) -> bool:
    """Say what came otherwise than expected at the end of ``torchstone run``; return whether all is well."""
    record = db.run(run)
    names = [word for file in baseline.files for word in ("--expect", str(file.path))]
    again = ["torchstone", "expect", "check", "--run", run, "--store", str(db.path), *names]
    try:
        report = baseline.check(db, record)
    except InputError as error:  # the disk has filled meanwhile
        wanted = [*again, "--junit", str(baseline.junit)] if baseline.junit else again
        raise InputError(f"{error}; run {run} has ended, and is kept. To go on: {shell_command(wanted)}") from error
    if baseline.files:
        say(f"\n{headline(report)}")
        rows = problem_rows(report)
        if rows:
            show_table(rows[:SHOWN], COLUMNS, TableFormat.table)
        if len(rows) > SHOWN:
            say(f"and {len(rows) - SHOWN:,} more: {shell_command(again)}")
    for line in baseline.annotations(record, report):
        write_raw(f"{line}\n")
    sys.stdout.flush()
    return report.ok


def headline(report: ExpectationReport) -> str:
    """Return the counts in one line."""
    counts = report.counts
    parts = [
        f"{counts['expected failures']:,} expected failures",
        f"{len(report.unexpected):,} cases otherwise than expected",
        f"{len(report.stale):,} stale rows",
    ]
    if report.out_of_scope:
        parts.append(f"{report.out_of_scope:,} rows about what the run was not asked for")
    if report.todo:
        parts.append(f"{report.todo:,} rows whose reason is still to be written (TODO)")
    return "expectations: " + ", ".join(parts)


def problem_rows(report: ExpectationReport) -> list[dict[str, Any]]:
    """Return one row of ``COLUMNS`` for each case that came otherwise, then for each stale row."""
    from torchstone.conformance.escape import one_line

    rows = [
        {
            "kind": _kind(finding), "backend": finding.result.backend, "case": finding.result.case_id,
            "expected": finding.expected, "outcome": finding.result.outcome,
            "message": one_line(finding.result.message), "where": _where(finding),
        }
        for finding in report.unexpected
    ]  # fmt: skip
    return rows + [
        {
            "kind": "stale", "backend": backend, "case": str(row), "expected": " or ".join(row.outcomes),
            "outcome": "", "message": "matches no case of the run", "where": f"{path}:{row.line}",
        }
        for path, backend, row in report.stale
    ]  # fmt: skip


def _kind(finding: CheckedVerdict) -> str:
    harness = finding.result.outcome == "harness-error"
    return "harness-error" if harness else str(finding.unexpected)


def _where(finding: CheckedVerdict) -> str:
    return f"{finding.path}:{finding.row.line}" if finding.row is not None else str(finding.path or "")


def _problems(record: RunRecord, report: ExpectationReport) -> Iterator[Annotation]:
    from torchstone.reports.annotations import Annotation

    for backend, reason in record.errors.items():
        yield Annotation(f"{backend} could not be run to the end", reason)
    for path, backend, row in report.stale:
        message = f"{row}: matches no case of run {record.run}"
        yield Annotation(f"{backend}: stale expectation", message, _in_workspace(path), row.line)
    for finding in report.unexpected:
        result = finding.result
        message = f"expected {finding.expected}, got {result.outcome}: {result.message}"
        where = (_in_workspace(finding.path), finding.row.line) if finding.path and finding.row else ("", 0)
        yield Annotation(f"{result.backend}: {_kind(finding)} of {result.case_id}", message, *where)


def _in_workspace(path: Path) -> str:
    """Return a path as GitHub wants it, from the root of the checkout."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if root and (full := path.resolve()).is_relative_to(Path(root).resolve()):
        return str(full.relative_to(Path(root).resolve()))
    return str(path)


def _tests(
    db: Store, record: RunRecord, files: Sequence[ExpectationFile], report: ExpectationReport
) -> Iterator[JunitTest]:
    from torchstone.conformance.expectations import checked_verdicts
    from torchstone.reports.junit import JunitTest

    for finding in checked_verdicts(db, record.run, files):
        yield _test(finding)
    for path, backend, row in report.stale:
        message = f"{row}: matches no case of run {record.run}"
        yield JunitTest(backend, f"{backend}.expectations", f"{path}:{row.line}", "failed", message, "stale")
    for backend, reason in record.errors.items():
        yield JunitTest(backend, f"{backend}.harness", "run to the end", "error", reason, "harness-error")


def _test(finding: CheckedVerdict) -> JunitTest:
    from torchstone.conformance.escape import one_line, replay_command
    from torchstone.conformance.execution.verdict import FAILURES, Outcome
    from torchstone.reports.junit import JunitTest

    result, row = finding.result, finding.row
    state, message, detail = "passed", "", ""
    if finding.unexpected is not None:
        state = "error" if result.outcome == Outcome.HARNESS_ERROR else "failed"
        message = f"expected {finding.expected}, got {result.outcome}: {one_line(result.message)}"
        detail = f"{result.message}\n{result.evidence}\n{replay_command(result.case_id, result.backend)}\n"
    elif row is not None and result.outcome in FAILURES:
        state, message = (
            "skipped",
            f"expected {result.outcome}: {row.reason}" + (f" ({row.issue})" if row.issue else ""),
        )
    elif result.outcome in (Outcome.UNSUPPORTED, Outcome.UNTESTED):
        state, message = "skipped", f"{result.outcome}: {one_line(result.message)}"
    classname = ".".join((result.backend, result.source, result.op, result.dtype))
    kind = f"{result.outcome} {result.kind}".strip()
    return JunitTest(result.backend, classname, result.case_id, state, message, kind, detail, result.seconds)
