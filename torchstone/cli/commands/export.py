"""``torchstone runs export``: the verdicts of runs as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchstone.cli.options import StoreOption
from torchstone.cli.output import say
from torchstone.cli.paths import output_file


def export(
    run: Annotated[list[str] | None, typer.Argument(help="The runs [default: the newest].")] = None,
    out: Annotated[Path, output_file("--out", help="The file to write; one that is there is replaced.")] = ...,  # type: ignore[assignment]
    form: Annotated[
        str | None,
        typer.Option("--format", help="parquet, csv, json or jsonl [default: what the file's name ends with]."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write the verdicts of runs as Parquet, CSV, JSON or JSON lines, one row a verdict."""
    from torchstone.conformance.errors import UnknownName
    from torchstone.conformance.store import Store
    from torchstone.reports.export import ExportFormat
    from torchstone.reports.export import export as write

    name = (form or out.suffix.removeprefix(".")).lower()
    if name not in list(ExportFormat):
        raise UnknownName("format", name, ExportFormat, more="; give --format")
    with Store(store, readonly=True) as db:
        records = list({record.run: record for record in map(db.run, run or ["latest"])}.values())
        count = write(db, records, out, ExportFormat(name))
    say(f"{out}: {count:,} verdicts of {', '.join(record.run for record in records)}")
