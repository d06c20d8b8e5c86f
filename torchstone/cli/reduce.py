"""``torchstone reduce``: from a failing case to a script that a maintainer can paste."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import StoreOption

if TYPE_CHECKING:
    from torchstone.reducers.failure import Reduction


def reduce(
    case: Annotated[str, typer.Argument(metavar="FILE|CASE", help="A saved case, or a case's id.")],
    backend: Annotated[str, typer.Option("--backend", "-b", help="Backend it fails on.")],
    run: Annotated[str | None, typer.Option("--run", help="Take the stored case of this run.")] = None,
    time: Annotated[str, typer.Option("--time", help="How long: 60s, 10m.")] = "5m",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Cases to try, at most.")] = 2000,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a case may take.")] = 60.0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to [default: .torchstone/reduced/CASE].")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Folder to add the reduced case to, for `torchstone run --corpus`.")
    ] = None,
    store: StoreOption = None,
) -> int:
    """Shrink a failing case to a standalone script. Exit code 0 if a fresh worker confirms it, 1 if not."""
    from torchstone.cli.replay import find_case
    from torchstone.cli.run import _check
    from torchstone.fuzz.duration import seconds

    budget = seconds(time)
    _check({"sources": [], "backends": [backend]})
    found = find_case(case, store, run)
    from torchstone.reducers.engine import Budget
    from torchstone.reducers.failure import reduce
    from torchstone.reducers.write import keep as keep_in
    from torchstone.reducers.write import prepare, write

    name = re.sub(r"[^\w.-]", "_", f"{found.id}-{backend}")
    folder = prepare(out or Path(".torchstone/reduced") / name)
    if keep is not None:
        prepare(keep)
    live = sys.stderr.isatty()
    reduction = reduce(
        found,
        backend,
        budget=Budget(trials=trials, seconds=budget),
        timeout=timeout,
        progress=lambda step: print(f"  {step.name}: {_size(step.size)}", file=sys.stderr) if live else None,
    )
    write(reduction, folder)
    _show(reduction, folder)
    if keep is not None and reduction.confirmed:
        print(f"kept      {keep_in(reduction, keep)}")
    return OK if reduction.confirmed else FAILURES


def _size(size: tuple) -> str:
    return f"{size[0]} calls, {size[2]} inputs, {size[3]} elements"


def _show(reduction: Reduction, folder: Path) -> None:
    from torchstone.reducers.write import measure

    before, after = measure(reduction.original), measure(reduction.case)
    print(f"failure   {reduction.signature}")
    for what in ("calls", "elements"):
        print(f"{what:<9} {before[what]} -> {after[what]}")
    for line in after["program"]:
        print(f"program   {line}")
    for name, tensor in reduction.case.inputs.items():
        print(f"input     {name}: {str(tensor.dtype)[6:]}{list(tensor.shape)}")
    print(f"search    {reduction.trials} trials, {reduction.seconds:.1f} s, {_ended(reduction)}")
    print(f"written   {folder}")


def _ended(reduction: Reduction) -> str:
    end = "nothing more to take away" if reduction.complete else "stopped by its budget"
    return f"{end}, {'confirmed' if reduction.confirmed else 'NOT confirmed'} in a fresh worker"
