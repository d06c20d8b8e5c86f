"""``torchstone ops``: what the suite can ask of a backend."""

from __future__ import annotations

from typing import Annotated

import typer

from torchstone.cli.options import check_dtypes
from torchstone.cli.tables import Format, FormatOption, show

COLUMNS = ("op", "dtypes")


def ops(
    pattern: Annotated[list[str] | None, typer.Argument(help="Ops or shell patterns [default: all].")] = None,
    dtype: Annotated[list[str] | None, typer.Option("--dtype", help="Only ops with samples of this dtype.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="opinfo (default), modules, models, errors; repeatable."),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """List the ops the suite knows, with their dtypes."""
    wanted = check_dtypes(dtype or ["all"])
    from torchstone.conformance.sources import load, select

    chosen = select(source or ["opinfo"], pattern or None)
    rows = [{"op": name, "dtypes": load(where).dtypes_of(name)} for where, names in chosen.items() for name in names]
    if wanted is not None:
        rows = [row for row in rows if set(wanted) & set(row["dtypes"])]
    show(rows, COLUMNS, form)
