"""``torchstone bisect``: which stage of a compiler a failing case comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.commands.replay import check_case, find_case
from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import CpuLevelOption, OpsFromOption, StoreOption, load_ops, set_cpu_level
from torchstone.cli.output import say
from torchstone.cli.workers import check_backend_names, check_usable
from torchstone.conformance.escape import one_line

if TYPE_CHECKING:
    from torchstone.conformance.bisection import Tried

_SHOWS = {True: "fails", False: "right", None: "cannot tell"}


def bisect(
    case: Annotated[str, typer.Argument(metavar="FILE|CASE", help="A saved case, or a case's id.")],
    backend: Annotated[str, typer.Option("--backend", "-b", help="Backend that fails on it.")],
    run: Annotated[str | None, typer.Option("--run", help="Take the stored case of this run.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a trial may take.")] = 60.0,
    cpu_level: CpuLevelOption = None,
    store: StoreOption = None,
    ops_from: OpsFromOption = None,
) -> int:
    """Say which stage of a compiler a case fails in, or is refused by. Exit code 1 if one is named, 0 if it is right.

    The case is tried on the compiler up to each of its stages, an interpreter in the place of the rest, and then on the
    parts of the first stage that shows the failure. The stages are known of torchstone's own targets, of inductor, and
    of backends that begin with torch.export.
    """
    set_cpu_level(cpu_level)
    load_ops(ops_from)
    check_backend_names([backend])
    check_case(case, store, run)
    check_usable([backend], {})
    found = find_case(case, store, run)
    from torchstone.conformance.bisection import bisect as search

    say(f"case     {one_line(found.id)}")
    for line in str(found.program).splitlines():
        say(f"program  {one_line(line)}")
    blame = search(found, backend, timeout, _show)
    kind = f" ({blame.verdict.kind})" if blame.verdict.kind else ""
    say(f"verdict  {blame.verdict.outcome}{kind} {one_line(blame.verdict.message)}".rstrip())
    if not blame.stage:
        return OK
    say(f"blame    {one_line(str(blame))}")
    return FAILURES


def _show(tried: Tried) -> None:
    reason = f" ({one_line(tried.verdict.message, 80)})" if tried.shows is None else ""
    say(f"{_SHOWS[tried.shows]:<12} {one_line(tried.what)}{reason}")
