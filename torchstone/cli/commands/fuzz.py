"""``torchstone fuzz``: a campaign from the command line, with progress, and the ranked list it ends with."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.errors import FAILURES, INTERRUPTED, OK
from torchstone.cli.options import NewStoreOption, OpsFromOption, check_known, load_ops, parse_duration
from torchstone.cli.output import TableFormat, say, show_table, warn
from torchstone.cli.paths import input_folder, output_folder
from torchstone.cli.progress import LIVE_SECONDS, PLAIN_SECONDS, LiveText
from torchstone.cli.workers import (
    PythonOption,
    check_backend_names,
    check_usable,
    parse_pythons,
    sigterm_interrupts,
    worker_count,
)
from torchstone.conformance.custom import registration
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name, shell_command
from torchstone.conformance.execution.verdict import CORRECT
from torchstone.conformance.files import check_folder
from torchstone.conformance.sources.names import ASKED_ALONE, OF_OPS, known_names
from torchstone.conformance.store import VERDICT_COLUMNS, Campaign, Store, StoreError, now, record_campaign

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
_GUIDANCE = "Draw more often what no program had yet, and what gave news."
GuidanceOption = Annotated[bool, typer.Option("--guidance/--no-guidance", help=_GUIDANCE)]
_CORPUS = "Programs kept between campaigns, tried first [default: .torchstone/corpus/BACKEND]."
_SPECIAL = "Put nan, inf and -0 into inputs of every program, not of some."
SpecialOption = Annotated[bool, typer.Option("--special-values", help=_SPECIAL)]
_REDUCE_TIME = "How long one reduction may take, in a tenth of --time at most."
ReduceTimeOption = Annotated[str, typer.Option("--reduce-time", help=_REDUCE_TIME)]
_OUT = "Folder for findings [default: .torchstone/fuzz/BACKEND-SEED]."


def fuzz(
    backend: Annotated[
        list[str],
        typer.Option("--backend", "-b", help="Backend to try. A name or module:attribute; repeatable: equal times."),
    ],
    time: Annotated[str, typer.Option("--time", help="How long: 60s, 10m, 1h30m.")] = "60s",
    op: OpOption = None,
    ops_from: OpsFromOption = None,
    alone: AloneOption = False,
    passing: PassingOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Stream of programs [default: a random one].")] = None,
    max_ops: Annotated[int, typer.Option("--max-ops", min=1, max=100, help="Calls in a program, at most.")] = 5,
    special_values: SpecialOption = False,
    guidance: GuidanceOption = True,
    programs: Annotated[int | None, typer.Option("--programs", min=1, help="Stop after this many programs.")] = None,
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="Worker processes: a number, or auto.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a program may take.")] = 60.0,
    reduce_time: ReduceTimeOption = "60s",
    out: Annotated[Path | None, output_folder("--out", help=_OUT)] = None,
    known: Annotated[
        list[Path] | None,
        input_folder("--known", help="Folder of an earlier campaign: what it found is left out; repeatable."),
    ] = None,
    corpus: Annotated[Path | None, output_folder("--corpus", help=_CORPUS)] = None,
    python: PythonOption = None,
    store: NewStoreOption = None,
) -> int:
    """Try random programs on a backend until the time is up. Exit code 1 if any failed, 0 if none did.

    With an op of your own, or --alone: that op in every way the suite knows, and what it promises.
    """
    budget, reduce_seconds, workers = parse_duration(time), parse_duration(reduce_time), worker_count(jobs)
    pythons = parse_pythons(python or [], backend)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    folders = _folders(backend, seed, out)
    load_ops(ops_from)
    alone = alone or any(registration.is_custom(name) for name in op or ())
    if alone and not op:
        raise InputError("--alone is of an op: give --op")
    asked = [name for name in op or () if not registration.is_custom(name)]
    _check_names(backend, pythons, asked, ASKED_ALONE if alone else OF_OPS, passing, store)
    check_usable(backend, pythons)
    from torchstone.fuzz.campaign import CampaignOptions

    codes = []
    for name, folder in folders.items():
        plan = CampaignOptions(
            backend=name, seconds=budget / len(folders), seed=seed, out=folder,
            pool=_passing(passing, name, store) if passing else (), max_ops=max_ops, jobs=workers, timeout=timeout,
            programs=programs, reduce_seconds=reduce_seconds, specials=special_values, guided=guidance,
            corpus=None if alone else _corpus(corpus, name, len(folders)), python=pythons.get(name),
        )  # fmt: skip
        codes.append(_campaign(plan, op or (), known or (), alone, store))
        if codes[-1] == INTERRUPTED:
            break
    return max(codes)


def _campaign(plan: CampaignOptions, ops: Sequence[str], known: Sequence[Path], alone: bool, store: Path | None) -> int:
    """One backend's campaign, with its progress; the exit code."""
    warn(f"fuzzing {plan.backend} with seed {plan.seed}")
    words = ["torchstone", "fuzz", "--backend", plan.backend, "--seed", str(plan.seed), "--out", str(plan.out)]
    with sigterm_interrupts(), Progress() as progress, _full_disk_named(plan.out, shell_command(words)):
        return _alone(plan, ops, progress) if alone else _together(plan, ops, known, progress, store)


def _together(
    plan: CampaignOptions, ops: Sequence[str], known: Sequence[Path], progress: Progress, store: Path | None
) -> int:
    """A campaign of programs, and the list that it ends with."""
    from torchstone.fuzz.campaign import Tally, not_done, run_campaign
    from torchstone.fuzz.generator.catalog import select_rules
    from torchstone.fuzz.saved import known_findings, record, resume

    plan = replace(plan, must=select_rules(ops))
    tally = Tally()
    for folder in known:
        for finding in known_findings(folder, plan.backend):
            tally.findings.restore(finding)
    if resume(plan, tally):
        found = f"{tally.tried} programs and {len(tally.findings)} findings"
        warn(f"going on with the campaign in {plan.out}: {found} after {tally.seconds:.0f} s")
    with Store(store) as db:
        run_campaign(
            plan, progress.show, tally, lambda its, finished: _keep(db, plan, its, record(plan, its, finished=finished))
        )
        progress.close()
        _show(plan, tally)
        for line in not_done(plan, tally):
            say(line)
        say(f"\nthe campaign is in {db.path}, and a report shows it: torchstone report")
    if tally.interrupted:
        warn("interrupted; the findings so far are kept. The same command with the same --seed and --out goes on")
        return INTERRUPTED
    return FAILURES if len(tally.findings) or tally.unsorted else OK


def _keep(db: Store, plan: CampaignOptions, tally: Tally, told: dict[str, Any]) -> None:
    """Write what a campaign did so far into the store; while it goes on, a store that is in use is left alone."""
    command = shell_command(["torchstone", *sys.argv[1:]])
    campaign = Campaign(plan.backend, str(plan.out.absolute()), now(), command, told)
    cases = {finding.name: finding.best.to_bytes() for finding in tally.findings.ranked()}
    with contextlib.nullcontext() if told["finished"] else contextlib.suppress(StoreError):
        record_campaign(db, campaign, cases)


def _alone(plan: CampaignOptions, ops: Sequence[str], progress: Progress) -> int:
    """Ops asked alone, and the page of each."""
    from torchstone.fuzz.session import ask_alone

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


def _folders(backends: Sequence[str], seed: int, out: Path | None) -> dict[str, Path]:
    """Return the folder of each backend's findings: that which is given, or one in it where they are several.

    Raises InputError for one that cannot be written to.
    """
    names = list(dict.fromkeys(backends))
    if out is not None:
        return {name: out if len(names) == 1 else out / file_name(name.replace(":", ".")) for name in names}
    folders = {name: Path(".torchstone/fuzz") / file_name(name.replace(":", "."), str(seed)) for name in names}
    for folder in folders.values():
        check_folder(folder, "--out")
    return folders


def _corpus(given: Path | None, backend: str, backends: int) -> Path:
    """Return the folder of the programs that are kept for a backend."""
    if given is not None and backends == 1:
        return given
    return (given or Path(".torchstone/corpus")) / file_name(backend.replace(":", "."))


def _check_names(
    backends: Iterable[str],
    pythons: Mapping[str, str],
    ops: Iterable[str],
    sources: Iterable[str],
    passing: str | None,
    store: Path | None,
) -> None:
    """Raise UnknownName for a backend, an op or a run that there is not, where that is known without PyTorch."""
    check_backend_names([name for name in backends if name not in pythons])
    if passing:
        with Store(store, readonly=True) as db:
            db.run(passing)
    names = [known_names(source) for source in sources]
    if None not in names:
        known = [name for of_one in names for name in of_one or ()]
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
    """What a campaign is doing, on stderr: live on a terminal, a line every ten seconds elsewhere."""

    def __enter__(self) -> Progress:
        self.shown = 0.0
        self._live = LiveText()
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Take away what is shown."""
        self._live.stop()

    def show(self, tally: Tally) -> None:
        """Show the tally when it is time to."""
        if tally.seconds - self.shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
            return
        self.shown = tally.seconds
        if self._live:
            self._live.show(*self.lines(tally))
        else:
            warn(self.line(tally))

    @staticmethod
    def lines(tally: Tally) -> list[str]:
        """The counts, what is being tried, and what is being reduced."""
        outcomes = "  ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
        return [
            f"{tally.seconds:.0f} s  {tally.tried} programs  {tally.rate:.1f}/s  {len(tally.reached.ops)} ops",
            f"findings  {len(tally.findings)}  {outcomes}",
            f"trying    {tally.trying or 'nothing yet'}",
            *([f"reducing  {tally.reducing}"] if tally.reducing else []),
        ]

    @staticmethod
    def line(tally: Tally) -> str:
        outcomes = "  ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
        doing = f"  reducing: {tally.reducing}" if tally.reducing else ""
        return (
            f"{tally.seconds:.0f} s  {tally.tried} programs  {tally.rate:.1f}/s  {len(tally.reached.ops)} ops  "
            f"{len(tally.findings)} findings  {outcomes}{doing}"
        )


def _show(plan: CampaignOptions, tally: Tally) -> None:
    """Print the counts and the ranked findings on stdout."""
    outcomes = ", ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
    say(
        f"{tally.tried} programs in {tally.seconds:.1f} s ({tally.rate:.1f}/s), seed {plan.seed}: "
        f"{outcomes or 'nothing tried'}"
    )
    drafts = tally.drafts
    if drafts.programs:
        say(
            f"{tally.reached}; {drafts.programs_kept / drafts.programs:.0%} of the programs and "
            f"{drafts.calls_kept / drafts.calls:.0%} of the calls that were drawn are valid"
        )
    if tally.left_out:
        say(f"{tally.left_out} programs left out: nothing is left of them without known causes")
    rows = [
        {
            "rank": at,
            "outcome": finding.signature.outcome,
            "ops": [call.target.removeprefix("torch.") for call in finding.best.program.calls],
            "calls": len(finding.best.program.calls),
            "elements": max((tensor.numel() for tensor in finding.best.args), default=0),
            "cause": str(finding.cause or ""),
            "seen": len(finding.seen),
            "confirmed": finding.reduction.confirmed if finding.reduction else finding.record.get("confirmed"),
            "message": (finding.reduction.verdict if finding.reduction else finding.verdict).message[:80],
            "folder": str(finding.folder),
        }
        for at, finding in enumerate(tally.findings.ranked(), start=1)
    ]
    for finding in tally.findings.known:
        say(f"known: {finding.name}: {len(finding.seen)} cases; {finding.cause or 'no cause known'}")
    if not rows and not tally.unsorted:
        say("no new failures" if tally.findings.known else "no failures")
    if rows:
        say(f"{len(rows)} findings, worst first; {plan.out / 'campaign.json'} has the details\n")
        show_table(rows, list(rows[0]), TableFormat.table)
