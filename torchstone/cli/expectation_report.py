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

from torchstone.cli.output import put, say
from torchstone.cli.tables import Format, show
from torchstone.conformance.escape import shell

if TYPE_CHECKING:
    from torchstone.conformance.expectations import Expectations, Finding, Judgement
    from torchstone.conformance.store import Run, Store
    from torchstone.reports.annotations import Problem
    from torchstone.reports.junit import Entry

COLUMNS = ("kind", "backend", "case", "expected", "outcome", "message", "where")
SHOWN = 20


class Annotations(StrEnum):
    """For whom problems are annotated."""

    auto = "auto"
    github = "github"
    none = "none"


ExpectOption = Annotated[
    list[Path] | None,
    typer.Option("--expect", help="Expectation file of a backend: only what it does not expect fails; repeatable."),
]
JunitOption = Annotated[Path | None, typer.Option("--junit", help="Write the results as JUnit XML into this file.")]
AnnotationsOption = Annotated[
    Annotations,
    typer.Option(
        "--annotations",
        help="Print what fails as annotations: github, none, or auto (github where GITHUB_ACTIONS is set).",
        case_sensitive=False,
    ),
]


@dataclass(frozen=True)
class Held:
    """What a run is held against, and where that is told."""

    files: tuple[Expectations, ...] = ()
    junit: Path | None = None
    annotate: bool = False

    @classmethod
    def of(
        cls, expect: Sequence[Path] | None, junit: Path | None, annotations: Annotations,
        backends: Collection[str], whose: str,
    ) -> Held:  # fmt: skip
        """Read the files. Raises InputError for what cannot be used, before anything is run."""
        from torchstone.conformance.errors import InputError
        from torchstone.conformance.expectations import check_backends, load

        files = tuple(check_backends([load(path) for path in expect or ()], backends, whose).values())
        if junit is not None and junit.is_dir():
            raise InputError(f"cannot write {junit}: it is a folder; give the path of a file")
        wanted = annotations is Annotations.github
        if annotations is Annotations.auto:
            wanted = os.environ.get("GITHUB_ACTIONS", "").lower() in ("true", "1")
        return cls(files, junit, wanted)

    def judge(self, db: Store, record: Run) -> Judgement:
        """Judge a run that has ended, write the JUnit file, and return the judgement."""
        from torchstone.conformance.expectations import judge
        from torchstone.reports import junit

        judgement = judge(db, record, self.files)
        if self.junit is not None:
            properties = {"run": record.run, "command": record.command, "device": record.device, **record.versions}
            tests = _tests(db, record, self.files, judgement)
            junit.write(self.junit, tests, started=record.started, host=record.host or "", properties=properties)
        return judgement

    def annotations(self, record: Run, judgement: Judgement) -> list[str]:
        """Return the lines that annotate what is wrong, none when nobody wants them."""
        from torchstone.reports import annotations

        return list(annotations.lines(list(_problems(record, judgement)))) if self.annotate else []


def conclude(held: Held, db: Store, run: str) -> bool:
    """Say what came otherwise than expected at the end of ``torchstone run``; return whether all is well."""
    record = db.run(run)
    judgement = held.judge(db, record)
    if held.files:
        say(f"\n{headline(judgement)}")
        rows = problem_rows(judgement)
        if rows:
            show(rows[:SHOWN], COLUMNS, Format.table)
        if len(rows) > SHOWN:
            names = [word for file in held.files for word in ("--expect", str(file.path))]
            command = ["torchstone", "expect", "check", "--run", run, "--store", str(db.path), *names]
            say(f"and {len(rows) - SHOWN:,} more: {shell(command)}")
    for line in held.annotations(record, judgement):
        put(f"{line}\n")
    sys.stdout.flush()
    return judgement.ok


def headline(judgement: Judgement) -> str:
    """Return the counts in one line."""
    counts = judgement.counts
    parts = [
        f"{counts['expected failures']:,} expected failures",
        f"{len(judgement.unexpected):,} cases otherwise than expected",
        f"{len(judgement.stale):,} stale rows",
    ]
    if judgement.out_of_scope:
        parts.append(f"{judgement.out_of_scope:,} rows about what the run was not asked for")
    if judgement.todo:
        parts.append(f"{judgement.todo:,} rows whose reason is still to be written (TODO)")
    return "expectations: " + ", ".join(parts)


def problem_rows(judgement: Judgement) -> list[dict[str, Any]]:
    """Return one row of ``COLUMNS`` for each case that came otherwise, then for each stale row."""
    from torchstone.conformance.text import one_line

    rows = [
        {
            "kind": _kind(finding), "backend": finding.result.backend, "case": finding.result.case_id,
            "expected": finding.expected, "outcome": finding.result.outcome,
            "message": one_line(finding.result.message), "where": _where(finding),
        }
        for finding in judgement.unexpected
    ]  # fmt: skip
    return rows + [
        {
            "kind": "stale", "backend": backend, "case": str(row), "expected": " or ".join(row.outcomes),
            "outcome": "", "message": "matches no case of the run", "where": f"{path}:{row.line}",
        }
        for path, backend, row in judgement.stale
    ]  # fmt: skip


def _kind(finding: Finding) -> str:
    harness = finding.result.outcome == "harness-error"
    return "harness-error" if harness else str(finding.unexpected)


def _where(finding: Finding) -> str:
    return f"{finding.path}:{finding.row.line}" if finding.row is not None else str(finding.path or "")


def _problems(record: Run, judgement: Judgement) -> Iterator[Problem]:
    from torchstone.reports.annotations import Problem

    for backend, reason in record.errors.items():
        yield Problem(f"{backend} could not be run to the end", reason)
    for path, backend, row in judgement.stale:
        message = f"{row}: matches no case of run {record.run}"
        yield Problem(f"{backend}: stale expectation", message, _in_workspace(path), row.line)
    for finding in judgement.unexpected:
        result = finding.result
        message = f"expected {finding.expected}, got {result.outcome}: {result.message}"
        where = (_in_workspace(finding.path), finding.row.line) if finding.path and finding.row else ("", 0)
        yield Problem(f"{result.backend}: {_kind(finding)} of {result.case_id}", message, *where)


def _in_workspace(path: Path) -> str:
    """Return a path as GitHub wants it, from the root of the checkout."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if root and (full := path.resolve()).is_relative_to(Path(root).resolve()):
        return str(full.relative_to(Path(root).resolve()))
    return str(path)


def _tests(db: Store, record: Run, files: Sequence[Expectations], judgement: Judgement) -> Iterator[Entry]:
    from torchstone.conformance.expectations import judged
    from torchstone.reports.junit import Entry

    for finding in judged(db, record.run, files):
        yield _test(finding)
    for path, backend, row in judgement.stale:
        message = f"{row}: matches no case of run {record.run}"
        yield Entry(backend, f"{backend}.expectations", f"{path}:{row.line}", "failed", message, "stale")
    for backend, reason in record.errors.items():
        yield Entry(backend, f"{backend}.harness", "run to the end", "error", reason, "harness-error")


def _test(finding: Finding) -> Entry:
    from torchstone.conformance.execution.verdict import FAILURES, Outcome
    from torchstone.conformance.text import one_line
    from torchstone.reports.junit import Entry
    from torchstone.reports.model import replay_command

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
    return Entry(result.backend, classname, result.case_id, state, message, kind, detail, result.seconds)
