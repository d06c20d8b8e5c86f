"""``torchstone controls``: backends that are right and compute otherwise, which the harness must not accuse."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import parse_dtypes
from torchstone.cli.output import FormatOption, TableFormat, say, show_table, warn
from torchstone.cli.paths import output_file
from torchstone.cli.selection_options import DtypesOption
from torchstone.cli.workers import sigterm_interrupts
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.files import check_file
from torchstone.conformance.sources import check_ops

if TYPE_CHECKING:
    from torchstone.conformance.controls import Control

JOURNAL = Path(".torchstone/controls.jsonl")
COLUMNS = ("control", "verdicts", "pass", "ill-conditioned", "untested", "unsupported", "failed")


def controls(
    control: Annotated[
        list[str] | None, typer.Option("--control", help="Control or shell pattern; repeatable [default: all].")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the controls and try none.")] = False,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", help="Op or shell pattern; repeatable [default: those that the controls name in turn]."),
    ] = None,
    ops: Annotated[int, typer.Option("--ops", min=1, help="How many ops the controls name.")] = 100,
    dtype: DtypesOption = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="How a case is asked; repeatable [default: all].")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="First samples only, per op and dtype.")] = 1,
    out: Annotated[
        Path | None,
        output_file(
            "--out", help="Journal: an op that is in it is not tried again [default: .torchstone/controls.jsonl]."
        ),
    ] = None,
    format: FormatOption = TableFormat.table,
) -> int:
    """Try right backends that compute otherwise than eager, and say which verdicts accuse them.

    Exit code 0 if none does, 1 otherwise.
    """
    check_ops(["opinfo"], op)
    from torchstone.conformance.controls import CONTROLS

    chosen = _chosen(CONTROLS, control)
    if listing:
        rows = [{"control": each.name, "claim": each.claim} for each in chosen.values()]
        show_table(rows, ("control", "claim"), format)
        return OK
    if out is None:
        out = JOURNAL
        check_file(out, "--out")
    from torchstone.conformance.controls import results, trial

    dtypes = parse_dtypes(dtype or ["float32"])
    variants = trial.wanted_variants(variant)
    journal = results.read_journal(out)
    names = trial.choose_ops(ops, chosen) if op is None else trial.wanted_ops(op)
    known = results.already_tried(journal, trial.question(variants, dtypes, limit, chosen))
    left = [name for name in names if name not in known]
    started = time.perf_counter()
    with sigterm_interrupts():
        for found in trial.try_ops(left, variants, dtypes, limit, chosen):
            results.append_to_journal(out, found)
            known[found.op] = found
            seconds = time.perf_counter() - started
            warn(f"{seconds:.0f} s  {len(known)}/{len(names)}  {found.op}: {len(found.failures)} failed")
    tried = [known[name] for name in names]
    show_table(results.table_rows(tried), COLUMNS, format)
    failures = [failure for one in tried for failure in one.failures]
    for failure in failures if format is TableFormat.table else ():
        say(f"\n{results.replay_command(failure)}\n  {failure['outcome']} {failure['kind']}: {failure['message']}")
    return FAILURES if failures else OK


def _chosen(known: dict[str, Control], names: Sequence[str] | None) -> dict[str, Control]:
    for name in names or ():
        if not fnmatch.filter(known, name):
            raise UnknownName("control", name, known) if "*" not in name else InputError(f'no control matches "{name}"')
    return {
        name: control
        for name, control in known.items()
        if names is None or any(fnmatch.fnmatch(name, wanted) for wanted in names)
    }
