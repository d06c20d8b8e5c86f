"""All that commands print: lines for people on stdout or stderr, and tables for people, JSON or CSV for programs.

What is printed may come from anywhere. Nothing but newlines steers a terminal, and no line is a command to a CI server.
A character that stdout cannot encode is written as an escape.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TextIO

import typer

from torchstone.conformance.escape import csv_rows, log_lines, printable_lines, visible


def say(text: object = "", *, to: TextIO | None = None) -> None:
    """Print lines for people, on stdout unless ``to`` is another stream."""
    print(log_lines(str(text)), file=to or sys.stdout, flush=to is not None)


def warn(text: object) -> None:
    """Print lines for people on stderr."""
    say(text, to=sys.stderr)


def write_raw(text: str, *, to: TextIO | None = None) -> None:
    """Write text that is fit for stdout already: JSON, CSV, commands to a CI server."""
    (to or sys.stdout).write(text)


def escape_unencodable() -> None:
    """Let no character that stdout cannot hold end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class TableFormat(StrEnum):
    """How a listing is printed."""

    table = "table"
    json = "json"
    csv = "csv"


FormatOption = Annotated[TableFormat, typer.Option("--format", help="How to print the listing.", case_sensitive=False)]


def show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], form: TableFormat) -> None:
    """Print ``rows`` on stdout; cells are JSON values, lists of names are joined by a space in table and CSV."""
    rows = list(rows)
    if form is TableFormat.json:
        text = json.dumps([{name: row[name] for name in columns} for row in rows], indent=2)
        write_raw(text.replace("##", "#\\u0023") + "\n")  # the same to who reads it, and no command to a CI server
        return
    cells = [[_text(row[name]) for name in columns] for row in rows]
    if form is TableFormat.csv:
        cells = [
            [
                row[name]
                if isinstance(row[name], int | float) and not isinstance(row[name], bool)
                else printable_lines(cell)
                for name, cell in zip(columns, line, strict=True)
            ]
            for row, line in zip(rows, cells, strict=True)
        ]
        text = io.StringIO()
        csv_rows(text, [columns, *cells])
        write_raw(text.getvalue())
        return
    cells = [list(map(visible, line)) for line in cells]
    if not sys.stdout.isatty():  # for grep and awk: no borders, no colours, nothing cut off
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for line in [list(columns), *cells]:
            say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    else:
        _rich(columns, cells)


def _rich(columns: Sequence[str], cells: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for line in cells:
        table.add_row(*map(Text, line))  # a str would be markup, and :x: a picture
    Console().print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return str(value)


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print our own warnings as one line each on stderr, without the line of our code that found out."""
    usual = warnings.showwarning
    told: set[str] = set()

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        from torchstone.compiler.diagnostics import TorchstoneWarning

        if issubclass(category, TorchstoneWarning):
            if str(message) not in told:
                warn(f"warning: {message}")
            told.add(str(message))
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
