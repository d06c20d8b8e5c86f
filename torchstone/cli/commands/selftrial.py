"""``torchstone selftrial``: mutants of the built-in compiler, and which of them the harness finds."""

from __future__ import annotations

import contextlib
import fnmatch
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.output import FormatOption, TableFormat, say, show_table, warn
from torchstone.cli.paths import output_file
from torchstone.conformance.files import check_file

if TYPE_CHECKING:
    from torchstone.conformance.mutants import Mutant


def selftrial(
    mutant: Annotated[
        list[str] | None,
        typer.Option("--mutant", "--bug", help="Mutant or shell pattern; repeatable [default: all]."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--class", help="Class of mutants, as in the listing; repeatable [default: all]."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the mutants and try none.")] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, help="First samples only, per op and dtype."),
    ] = 8,
    programs: Annotated[int, typer.Option("--programs", min=0, help="Programs of the fuzzer that call its ops.")] = 60,
    variants: Annotated[int, typer.Option("--variants", min=0, help="Cases of the samples in variants.")] = 1000,
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="Mutants tried at a time: a number, or auto.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a case may take.")] = 20.0,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Workers for every mutant, not the harmful ones only.")
    ] = False,
    out: Annotated[
        Path | None,
        output_file("--out", help="Journal: what is in it is not tried again [default: .torchstone/selftrial.jsonl]."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="End with the tables of the documentation.")] = False,
    format: FormatOption = TableFormat.table,
) -> int:
    """Try mutants of the built-in compiler, one mistake at a time, and say which the suite and the fuzzer find.

    Exit code 0 if all were found and nothing else was, 1 if not.
    """
    from torchstone.cli.workers import sigterm_interrupts, worker_count
    from torchstone.conformance.mutants import MUTANTS

    workers = worker_count(jobs)
    chosen = _chosen(MUTANTS, mutant, group)
    if listing:
        rows = [{"mutant": b.name, "class": b.group, "ops": list(b.ops), "wrong": b.wrong} for b in chosen]
        show_table(rows, ("mutant", "class", "ops", "wrong"), format)
        return OK
    out = out or _default_journal()
    from torchstone.fuzz import selftrial as trial

    known = trial.read_journal(out)
    found = {b.name: known[b.name] for b in chosen if b.name in known}
    left = [b for b in chosen if b.name not in found]
    started = time.perf_counter()
    options = {"limit": limit, "programs": programs, "most": variants, "isolated": isolated, "timeout": timeout}
    with sigterm_interrupts(), contextlib.closing(trial.run_trials(left, workers, **options)) as tried:
        for result in tried:
            found[result.mutant] = result
            trial.append_to_journal(out, result)
            outcome = (
                f"{result.outcome} {result.kind}".strip() + f" in {result.case}" if result.detected else "NOT FOUND"
            )
            seconds = time.perf_counter() - started
            warn(f"{seconds:.0f} s  {len(found)}/{len(chosen)}  {result.mutant}: {outcome}")
    found = {b.name: found[b.name] for b in chosen}
    if markdown:
        say(trial.markdown_tables(found))
    else:
        show_table(trial.table_rows(found), ("class", "mutants", "detected", "undetected", "false alarms"), format)
    return FAILURES if any(not result.detected or result.alarms for result in found.values()) else OK


def _default_journal() -> Path:
    """Return the journal where none is given. Raises InputError for one that cannot be written."""
    out = Path(".torchstone") / "selftrial.jsonl"
    check_file(out, "--out")
    return out


def _chosen(mutants: dict[str, Mutant], names: Iterable[str] | None, groups: Iterable[str] | None) -> list[Mutant]:
    from torchstone.conformance.errors import InputError, UnknownName

    known = list(dict.fromkeys(mutant.group for mutant in mutants.values()))
    for group in groups or ():
        if group not in known:
            raise UnknownName("class", group, known)
    for name in names or ():
        if not fnmatch.filter(mutants, name):
            raise UnknownName("mutant", name, mutants) if "*" not in name else InputError(f'no mutant matches "{name}"')
    return [
        mutant
        for mutant in mutants.values()
        if (names is None or any(fnmatch.fnmatch(mutant.name, name) for name in names))
        and (groups is None or mutant.group in groups)
    ]
