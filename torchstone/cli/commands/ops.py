"""``torchstone ops``: what the suite can ask of a backend."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from torchstone.cli.options import parse_dtypes
from torchstone.cli.output import FormatOption, TableFormat, show_table

COLUMNS = ("op", "dtypes", "tags")
TAG_COLUMNS = ("tag", "ops", "meaning")


def ops(
    pattern: Annotated[list[str] | None, typer.Argument(help="Ops or shell patterns [default: all].")] = None,
    dtype: Annotated[list[str] | None, typer.Option("--dtype", help="Only ops with samples of this dtype.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="opinfo (default), functions, modules, models, errors, corpus, a plugin's; repeatable."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only ops with this tag, !TAG without; repeatable.")
    ] = None,
    tags: Annotated[bool, typer.Option("--tags", help="List the tags, and how many of the ops have each.")] = False,
    form: FormatOption = TableFormat.table,
) -> None:
    """List the ops the suite knows, with their dtypes and tags."""
    wanted = parse_dtypes(dtype or ["all"])
    from torchstone.conformance.sources import check_ops, load_all, select

    sources = source or ["opinfo"]
    check_ops(sources, pattern)
    from torchstone.conformance.selection.selection import tagged

    loaded = load_all(sources)
    chosen = select(loaded, pattern or None)
    chosen = tagged(loaded, chosen, tag) if tag else chosen
    rows = [
        {"op": name, "dtypes": loaded[where].dtypes_of(name), "tags": sorted(loaded[where].tags_of(name))}
        for where, names in chosen.items()
        for name in names
    ]
    if wanted is not None:
        rows = [row for row in rows if set(wanted) & set(row["dtypes"])]
    if tags:
        show_table(_count(rows), TAG_COLUMNS, form)
    else:
        show_table(rows, COLUMNS, form)


def _count(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from torchstone.conformance.sources.tags import OF_CASES, TAGS

    counts = Counter(tag for row in rows for tag in row["tags"])
    docs = {name: row.doc for name, row in TAGS.items()} | {"train": f"{TAGS['train'].doc} Of some cases of an op."}
    named = [name for name in docs if counts[name] or name in OF_CASES] + sorted(set(counts) - set(docs))
    return [
        {"tag": tag, "ops": counts[tag], "meaning": docs.get(tag, "Modules of this file of torch.nn.")} for tag in named
    ]
