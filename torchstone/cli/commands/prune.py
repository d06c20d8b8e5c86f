"""``torchstone runs prune``: remove runs from a store."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.options import ChangedStoreOption
from torchstone.cli.output import say

if TYPE_CHECKING:
    from torchstone.conformance.store import RunRecord, Store

UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def prune(
    run: Annotated[list[str] | None, typer.Argument(help="Runs to remove.")] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=0, help="Remove all but the newest N runs.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Remove what started longer ago: 36h, 30d, 8w.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also what another machine left as running, which nobody can ask here.")
    ] = False,
    store: ChangedStoreOption = None,
) -> None:
    """Remove runs with their verdicts, and give back the space of failed cases that no other run has.

    With --keep and --older-than a run goes that is both. A run that is running is refused, and nothing is removed.
    """
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.store import Store
    from torchstone.conformance.store import prune as pruned

    if bool(run) == (keep is not None or older_than is not None):
        raise InputError("say what to prune: names of runs, or --keep and --older-than")
    age = _age(older_than) if older_than is not None else None
    with Store(store, create=False) as db:
        chosen = _chosen(db, run, keep, age)
        if not chosen:
            say("nothing to prune")
            return
        names = ", ".join(record.run for record in chosen)
        if not yes:
            if not sys.stdin.isatty():
                raise InputError(f"this would remove {names} from {db.path} for good; give --yes to do it")
            if not typer.confirm(f"Remove {names} from {db.path} for good?", err=True):
                say("nothing was pruned")
                return
        done = pruned(db, chosen, force=force)
    freed = "" if done.freed is None else f", {done.freed / 2**20:,.1f} MiB given back"
    say(f"pruned {names}: {done.verdicts:,} verdicts, {done.cases:,} cases{freed}")
    if done.freed is None:
        say("the file keeps its size while a run is running; the space is used again")


def _chosen(db: Store, run: list[str] | None, keep: int | None, age: timedelta | None) -> list[RunRecord]:
    from torchstone.conformance.store import runs_to_prune

    if run:
        return list({record.run: record for record in map(db.run, run)}.values())
    return runs_to_prune(db.run_list(), keep, age)


def _age(text: str) -> timedelta:
    from torchstone.conformance.errors import InputError

    found = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    if not found:
        raise InputError(f'--older-than takes a number of hours, days or weeks, such as 36h, 30d or 8w, got "{text}"')
    return timedelta(**{UNITS[found[2]]: int(found[1])})
