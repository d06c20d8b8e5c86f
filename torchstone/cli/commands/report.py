"""``torchstone report``: from a store to HTML, Markdown and JSON."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import StoreOption
from torchstone.cli.output import say
from torchstone.cli.paths import output_folder


class ReportFormat(StrEnum):
    """A file the report can be written as."""

    html = "html"
    markdown = "markdown"
    json = "json"


def report(
    run: Annotated[
        list[str] | None, typer.Option("--run", help="A run to report, repeatable [default: the newest].")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option("--against", help="An earlier run to compare with, repeatable.")
    ] = None,
    out: Annotated[Path, output_folder("--out", help="The folder to write into.")] = Path("site"),
    store: StoreOption = None,
    form: Annotated[
        list[ReportFormat] | None,
        typer.Option("--format", help="What to write, repeatable [default: all].", case_sensitive=False),
    ] = None,
) -> int:
    """Write the support report of one or more runs: ``index.html``, ``report.md``, ``report.json``.

    Several runs are read as one; where they hold the same backend and case, the later run counts. With ``--against``
    the exit code is 1 when a case got worse, as it is with ``diff``; otherwise it is 0 whatever the report shows.
    """
    from torchstone.conformance.store import Store
    from torchstone.reports.model import build_report
    from torchstone.reports.results import load_results
    from torchstone.reports.site import write_site

    with Store(store, readonly=True) as db:
        results = load_results(db, run or ())
        before = load_results(db, against) if against else None
    data = build_report(results, before)
    paths = write_site(data, out, form or list(ReportFormat))
    for row in data["backends"]:
        passed, complete = row["outcomes"].get("pass", 0), row["ops"]["complete"]
        say(
            f"{row['backend']}: {passed:,} of {row['cases']:,} cases pass, {row['failing']:,} fail, "
            f"{complete:,} of {row['ops']['total']:,} ops pass every sample"
        )
    say(f"report: {paths[0]}")
    if data["against"] is None:
        return OK
    changes = data["against"]
    say(f"changes: {len(changes['regressions']):,} regressions, {len(changes['fixes']):,} fixes")
    return FAILURES if changes["regressions"] else OK
