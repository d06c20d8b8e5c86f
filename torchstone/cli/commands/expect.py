"""``torchstone expect``: hold a stored run against what its backends are known to fail, and keep that up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.expectation_report import (
    COLUMNS,
    Annotations,
    AnnotationsOption,
    Baseline,
    ExpectOption,
    JunitOption,
    headline,
    problem_rows,
)
from torchstone.cli.options import StoreOption
from torchstone.cli.output import FormatOption, TableFormat, say, show_table, write_raw
from torchstone.cli.paths import output_file

expect = typer.Typer(no_args_is_help=True)
RunOption = Annotated[str, typer.Option("--run", help="The run, or latest.")]


@expect.command()
def check(
    expect: ExpectOption = None,
    run: RunOption = "latest",
    store: StoreOption = None,
    form: FormatOption = TableFormat.table,
    junit: JunitOption = None,
    annotations: AnnotationsOption = Annotations.auto,
) -> int:
    """Hold a stored run against expectations.

    What came otherwise than expected is listed, improvements included, and the rows that are stale: those that match no
    case, though they are about what the run was asked for. Exit code 1 if there is any. Without a file, with --junit,
    what fails is what fails a run.
    """
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.expectations import check_complete
    from torchstone.conformance.store import Store

    if not expect and junit is None:
        raise InputError("give at least one --expect FILE; `torchstone expect update` writes one")
    with Store(store, readonly=True) as db:
        record = db.run(run)
        baseline = Baseline.of(
            expect, junit, annotations, set(db.counts(record.run)) | set(record.errors), f"run {record.run}"
        )
        check_complete(record, [file.backend for file in baseline.files] or list(record.errors))
        report = baseline.check(db, record)
    rows = problem_rows(report)
    lines = baseline.annotations(record, report)
    if rows or form is not TableFormat.table:
        show_table(rows, COLUMNS, form)
    talk = sys.stdout if form is TableFormat.table else sys.stderr
    say(headline(report), to=talk)
    for line in lines:
        write_raw(f"{line}\n", to=talk)
    return OK if report.ok else FAILURES


@expect.command()
def update(
    expect: Annotated[Path, output_file("--expect", help="The file to bring up to date, made when absent.")],
    run: RunOption = "latest",
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="Backend of a new file [default: the only one of the run].")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Bring an expectation file up to date with a run.

    Rows that hold stay as they are, with their comments; the others go; what is new is added. The reason of a
    new row is the verdict's message, marked TODO: write what is known in its place, and the link to an issue.
    """
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.expectations import check_complete, files_by_backend, new_document, read_document
    from torchstone.conformance.expectations import update_document as updated
    from torchstone.conformance.store import Store

    with Store(store, readonly=True) as db:
        record = db.run(run)
        tried = sorted(set(db.counts(record.run)) | set(record.errors))
        if expect.exists():
            document = read_document(expect)
            if backend not in (None, document.expectations.backend):
                raise InputError(f'{expect}: is about backend "{document.expectations.backend}", not "{backend}"')
        elif backend is None and len(tried) != 1:
            raise InputError(f"run {record.run} tried {', '.join(tried) or 'nothing'}: name one with --backend")
        else:
            document = new_document(expect, backend or tried[0])
        files_by_backend([document.expectations], tried, f"run {record.run}")
        check_complete(record, [document.expectations.backend])
        result = updated(document, db, record)
    result.write()
    say(f"{expect}: {result.kept} rows kept, {len(result.added)} added, {len(result.removed)} removed")
    for row in result.removed:
        say(f"removed, line {row.line}: {row}: {' or '.join(row.outcomes)}")
    if result.added:
        say("the reasons of the new rows are verdicts' messages, marked TODO: write what is known in their place")
    if result.skipped:
        say(f"{result.skipped} cases met trouble of the harness itself; nothing was written about them")
