"""``torchstone selftrial``: mutants of the built-in compiler, and which of them the harness finds."""

from __future__ import annotations

import contextlib
import fnmatch
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.output import FormatOption, TableFormat, say, show_table, warn
from torchstone.cli.paths import output_file
from torchstone.conformance.files import check_file

if TYPE_CHECKING:
    from torchstone.conformance.mutants import Mutant

JOURNAL = Path(".torchstone/selftrial.jsonl")
DRAWN_JOURNAL = Path(".torchstone/mutants.jsonl")


MutantOption = Annotated[
    list[str] | None, typer.Option("--mutant", "--bug", help="Mutant or shell pattern; repeatable [default: all].")
]
ClassOption = Annotated[
    list[str] | None, typer.Option("--class", help="Class of mutants, as in the listing; repeatable [default: all].")
]


def selftrial(
    mutant: MutantOption = None,
    group: ClassOption = None,
    listing: Annotated[bool, typer.Option("--list", help="List the mutants and try none.")] = False,
    drawn: Annotated[
        int | None, typer.Option("--mutants", min=1, help="Draw so many mutants of the compiler's source instead.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="What --mutants draws follows from it.")] = 0,
    target: Annotated[str, typer.Option("--target", help="Whose source --mutants draws from.")] = "linalg",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="First samples only, per op and dtype [default: 8, of drawn mutants 3]."),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option("--programs", min=0, help="Programs of the fuzzer that call its ops [default: 60, or 12]."),
    ] = None,
    variants: Annotated[
        int | None,
        typer.Option("--variants", min=0, help="Cases of the samples in variants [default: 1000, or 120]."),
    ] = None,
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="Mutants tried at a time: a number, or auto.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a case may take.")] = 20.0,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Workers for every mutant, not the harmful ones only.")
    ] = False,
    out: Annotated[
        Path | None,
        output_file(
            "--out",
            help="Journal: what is in it is not tried again "
            "[default: .torchstone/selftrial.jsonl, of drawn mutants .torchstone/mutants.jsonl].",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="End with the tables of the documentation.")] = False,
    format: FormatOption = TableFormat.table,
) -> int:
    """Try mutants of the built-in compiler, one mistake at a time, and say which the suite and the fuzzer find.

    The mutants are those of a table, or with --mutants changes of single expressions and statements of its source; of
    these, --mutant takes fingerprints. Exit code 0 if all were found and nothing else was, 1 if not.
    """
    from torchstone.cli.workers import worker_count

    workers = worker_count(jobs)
    out = out or (DRAWN_JOURNAL if drawn is not None else JOURNAL)
    if not listing:
        check_file(out, "--out")
    effort = {"limit": limit, "programs": programs, "variants": variants}
    effort = {name: value for name, value in effort.items() if value is not None}
    if drawn is not None:
        from torchstone.cli.drawn_mutants import Draw, try_drawn

        draw = Draw(drawn, seed, target, mutant or ())
        return try_drawn(draw, workers, out, effort, timeout, listing=listing, format=format)
    from torchstone.conformance.mutants import MUTANTS

    chosen = _chosen(MUTANTS, mutant, group)
    if listing:
        rows = [{"mutant": b.name, "class": b.group, "ops": list(b.ops), "wrong": b.wrong} for b in chosen]
        show_table(rows, ("mutant", "class", "ops", "wrong"), format)
        return OK
    options = {"most": effort.pop("variants", 1000), "isolated": isolated, "timeout": timeout, **effort}
    return _try_planted(chosen, workers, out, options, markdown=markdown, format=format)


def _try_planted(
    chosen: Sequence[Mutant], workers: int, out: Path, options: dict[str, Any], *, markdown: bool, format: TableFormat
) -> int:
    from torchstone.cli.workers import sigterm_interrupts
    from torchstone.fuzz import selftrial as trial

    known = trial.read_journal(out)
    found = {b.name: known[b.name] for b in chosen if b.name in known}
    left = [b for b in chosen if b.name not in found]
    started = time.perf_counter()
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
