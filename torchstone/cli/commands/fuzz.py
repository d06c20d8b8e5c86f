"""``torchstone fuzz``: a campaign from the command line, with progress, and the ranked list it ends with."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.errors import FAILURES, INTERRUPTED, OK
from torchstone.cli.options import OpsFromOption, StoreOption, check_known, load_ops, parse_duration
from torchstone.cli.output import replace_line, say, warn
from torchstone.cli.paths import output_folder
from torchstone.cli.workers import check_backend_names, check_usable, sigterm_interrupts, worker_count
from torchstone.conformance.custom import registration
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name, shell_command
from torchstone.conformance.execution.verdict import CORRECT
from torchstone.conformance.files import check_folder
from torchstone.conformance.sources.names import known_names
from torchstone.conformance.store import VERDICT_COLUMNS, Store

if TYPE_CHECKING:
    from torchstone.fuzz.campaign import CampaignOptions, Tally
    from torchstone.fuzz.generator.rules import OpRule


_OP = (
    "Every program calls one of these ops [default: any]; repeatable. An op of your own, mylib::op or module:function, "
)
OpOption = Annotated[list[str] | None, typer.Option("--op", help=f"{_OP}is asked alone.")]
_ALONE = "Ask each --op alone, in every variant; at the end is a page about it."
AloneOption = Annotated[bool, typer.Option("--alone", help=_ALONE)]
_PASSING = "Only ops that passed in this run, or latest."
PassingOption = Annotated[str | None, typer.Option("--passing", metavar="RUN", help=_PASSING)]
_OUT = "Folder for findings [default: .torchstone/fuzz/BACKEND-SEED]."


def fuzz(
    backend: Annotated[str, typer.Option("--backend", "-b", help="Backend to try. A name or module:attribute.")],
    time: Annotated[str, typer.Option("--time", help="How long: 60s, 10m, 1h30m.")] = "60s",
    op: OpOption = None,
    ops_from: OpsFromOption = None,
    alone: AloneOption = False,
    passing: PassingOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Stream of programs [default: a random one].")] = None,
    max_ops: Annotated[int, typer.Option("--max-ops", min=1, max=100, help="Calls in a program, at most.")] = 5,
    special_values: Annotated[
        bool, typer.Option("--special-values", help="Put nan, inf and -0 into inputs, which are finite otherwise.")
    ] = False,
    programs: Annotated[int | None, typer.Option("--programs", min=1, help="Stop after this many programs.")] = None,
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="Worker processes: a number, or auto.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a program may take.")] = 60.0,
    reduce_time: Annotated[str, typer.Option("--reduce-time", help="How long one reduction may take.")] = "60s",
    out: Annotated[Path | None, output_folder("--out", help=_OUT)] = None,
    store: StoreOption = None,
) -> int:
    """Try random programs on a backend until the time is up. Exit code 1 if any failed, 0 if none did.

    With an op of your own, or --alone: that op in every way the suite knows, and what it promises.
    """
    budget, reduce_seconds, workers = parse_duration(time), parse_duration(reduce_time), worker_count(jobs)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    out = out or _default_folder(backend, seed)
    load_ops(ops_from)
    alone = alone or any(registration.is_custom(name) for name in op or ())
    _check_names(backend, [name for name in op or () if not registration.is_custom(name)], passing, store)
    check_usable([backend], {})
    from torchstone.fuzz.campaign import CampaignOptions

    plan = CampaignOptions(
        backend=backend,
        seconds=budget,
        seed=seed,
        out=out,
        pool=_passing(passing, backend, store) if passing else (),
        max_ops=max_ops,
        jobs=workers,
        timeout=timeout,
        programs=programs,
        reduce_seconds=reduce_seconds,
        specials=special_values,
    )
    warn(f"fuzzing {backend} with seed {seed}")
    again = shell_command(["torchstone", "fuzz", "--backend", backend, "--seed", str(seed), "--out", str(out)])
    with sigterm_interrupts(), Progress() as progress, _full_disk_named(out, again):
        return _alone(plan, op or (), progress) if alone else _together(plan, op or (), progress, again)


def _together(plan: CampaignOptions, ops: Sequence[str], progress: Progress, again: str) -> int:
    """A campaign of programs, and the list that it ends with."""
    from torchstone.fuzz.campaign import run_campaign
    from torchstone.fuzz.generator.catalog import select_rules

    plan = replace(plan, must=select_rules(ops))
    tally = run_campaign(plan, progress.show)
    progress.close()
    _show(plan, tally)
    if tally.interrupted:
        warn(f"interrupted; the findings so far are kept. To start over:\n  {again}")
        return INTERRUPTED
    return FAILURES if len(tally.findings) else OK


def _alone(plan: CampaignOptions, ops: Sequence[str], progress: Progress) -> int:
    """Ops asked alone, and the page of each."""
    from torchstone.fuzz.session import ask_alone

    if not ops:
        raise InputError("--alone is of an op: give --op")
    failed = False
    for asked in ask_alone(plan, ops, progress.show):
        progress.close()
        say(asked.page)
        say(f"this page: {asked.path}")
        failed |= asked.report.failed
        if asked.report.tally.interrupted:
            warn("interrupted; the findings so far are kept")
            return INTERRUPTED
    return FAILURES if failed else OK


def _default_folder(backend: str, seed: int) -> Path:
    """Return the folder of the findings where none is given. Raises InputError for one that cannot be written to."""
    out = Path(".torchstone/fuzz") / file_name(backend.replace(":", "."), str(seed))
    check_folder(out, "--out")
    return out


def _check_names(backend: str, ops: Iterable[str], passing: str | None, store: Path | None) -> None:
    """Raise UnknownName for a backend, an op or a run that there is not, where that is known without PyTorch."""
    check_backend_names([backend])
    if passing:
        with Store(store, readonly=True) as db:
            db.run(passing)
    known = known_names("opinfo")
    if known is not None:
        check_known("op", [op for op in ops if not any(name.startswith(f"{op}.") for name in known)], known)


@contextlib.contextmanager
def _full_disk_named(out: Path, again: str) -> Iterator[None]:
    """Say of a disk that fills, or a folder that goes, what is kept and how to start over."""
    try:
        yield
    except OSError as error:
        why = f"cannot write to {error.filename or out}: {error.strerror or error}"
        raise InputError(f"{why}; the findings so far are kept. Make room, and start over: {again}") from error


def _passing(run: str, backend: str, store: Path | None) -> tuple[OpRule, ...]:
    """Return the rules of the ops of which the backend passed a sample in a run: what it is known to take."""
    from torchstone.fuzz.generator.catalog import all_rules

    with Store(store, readonly=True) as db:
        record = db.run(run)
        rows = [dict(zip(VERDICT_COLUMNS, row, strict=True)) for row in db.iter_verdicts(record.run)]
    passed = {row["op"] for row in rows if row["backend"] == backend and row["outcome"] in CORRECT}
    found = tuple(rule for op, rule in all_rules().items() if op in passed)
    if not found:
        raise InputError(f"run {record.run} has no op that {backend} passed and the fuzzer knows")
    return found


class Progress:
    """One line on stderr: live on a terminal, every ten seconds elsewhere."""

    def __enter__(self) -> Progress:
        self.live, self.shown = sys.stderr.isatty(), 0.0
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Clear the line."""
        if self.live:
            replace_line()

    def show(self, tally: Tally) -> None:
        """Show the tally when it is time to."""
        if tally.seconds - self.shown < (0.2 if self.live else 10.0):
            return
        self.shown = tally.seconds
        line = self.line(tally)
        if self.live:
            replace_line(line[:150])
        else:
            warn(line)

    @staticmethod
    def line(tally: Tally) -> str:
        outcomes = "  ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
        doing = f"  reducing: {tally.reducing}" if tally.reducing else ""
        return (
            f"{tally.seconds:.0f} s  {tally.tried} programs  {tally.rate:.1f}/s  {len(tally.ops)} ops  "
            f"{len(tally.findings)} findings  {outcomes}{doing}"
        )


def _show(plan: CampaignOptions, tally: Tally) -> None:
    """Print the counts and the ranked findings on stdout."""
    from torchstone.cli.output import TableFormat, show_table

    outcomes = ", ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
    say(
        f"{tally.tried} programs in {tally.seconds:.1f} s ({tally.rate:.1f}/s) over {len(tally.ops)} op kinds, "
        f"seed {plan.seed}: {outcomes or 'nothing tried'}"
    )
    rows = [
        {
            "rank": at,
            "outcome": finding.signature.outcome,
            "ops": [call.target.removeprefix("torch.") for call in finding.best.program.calls],
            "calls": len(finding.best.program.calls),
            "elements": max((tensor.numel() for tensor in finding.best.args), default=0),
            "seen": len(finding.seen),
            "confirmed": finding.reduction.confirmed if finding.reduction else None,
            "message": (finding.reduction.verdict if finding.reduction else finding.verdict).message[:80],
            "folder": str(finding.folder),
        }
        for at, finding in enumerate(tally.findings.ranked(), start=1)
    ]
    if not rows:
        say("no failures")
        return
    say(f"{len(rows)} findings, worst first; {plan.out / 'campaign.json'} has the details\n")
    show_table(rows, list(rows[0]), TableFormat.table)
