"""``torchstone run``: the conformance suite, from the command line to the store."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.errors import FAILURES, INTERRUPTED, OK
from torchstone.cli.executor import AddressOption, Executor, ExecutorOption, Where
from torchstone.cli.expectation_report import Annotations, AnnotationsOption, ExpectOption, Held, JunitOption, conclude
from torchstone.cli.options import CpuLevelOption, StoreOption, check_names, hold_to
from torchstone.cli.output import warn
from torchstone.cli.pythons import PythonOption, check_backends, check_consent, in_pythons, pythons_of
from torchstone.cli.selection_options import options_of
from torchstone.conformance.escape import shell

if TYPE_CHECKING:
    from torchstone.conformance.selection.plan import Plan
    from torchstone.conformance.store import Run, Store


class Device(StrEnum):
    """Where backends run that can run in several places."""

    cpu = "cpu"
    cuda = "cuda"


def run(
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="Backend to try; repeatable. Names or module:attribute.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            help="Where cases come from: opinfo (default), modules, models, errors, corpus, a plugin's; repeatable.",
        ),
    ] = None,
    corpus: Annotated[
        list[Path] | None, typer.Option("--corpus", help="Folder of case files to ask too, or alone; repeatable.")
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", help="Op or shell pattern, !PATTERN to leave out; repeatable [default: all]."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Ops with this tag, !TAG without (`torchstone ops --tags`); repeatable."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", help="Case id, its beginning, or a pattern of each field; repeatable."),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", help="Dtype, or all; repeatable [default: float32].")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="How a case is asked: default, strided, transposed, expanded, offset, channels_last, lazy, "
            "special, extremes, small, shifted, mixed, scalar, empty, single, odd, square, long, dynamic, batch, "
            "constants, optional, outside, backward, a plugin's, or all; repeatable [default: default].",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="First samples only, per op and dtype.")] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", help="Part I of N of the cases, as I/N: the same parts everywhere.")
    ] = None,
    last_failed: Annotated[
        str | None,
        typer.Option("--last-failed", metavar="RUN", help="What did not pass in this run (or latest), per backend."),
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option("--changed-since", metavar="RUN", help="What has another outcome since this run, or is new."),
    ] = None,
    python: PythonOption = None,
    jobs: Annotated[
        str,
        typer.Option(
            "--jobs",
            "-j",
            help="Worker processes: a number, or auto, as many as fit: one a core, by affinity and quota, and as many "
            "times --memory as is available, by the system and the control group; one at least.",
        ),
    ] = "auto",
    executor: ExecutorOption = Executor.local,
    address: AddressOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a case may take.")] = 60.0,
    memory: Annotated[float, typer.Option("--memory", min=0.5, help="GiB of memory a worker may take.")] = 8.0,
    library_calls: Annotated[
        bool, typer.Option("--library-calls/--no-library-calls", help="Let the compiler call LibTorch for hard ops.")
    ] = True,
    device: Annotated[
        Device,
        typer.Option("--device", help="Where the backends run: cuda is their option +cuda, of those that have it."),
    ] = Device.cpu,
    cpu_level: CpuLevelOption = None,
    store: StoreOption = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Go on with this run (or latest): same options, only what is missing."),
    ] = None,
    expect: ExpectOption = None,
    junit: JunitOption = None,
    annotations: AnnotationsOption = Annotations.auto,
) -> int:
    """Run the conformance suite on one or more backends."""
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.store import Store, default_path

    workers = Where(executor, address, jobs, memory)
    if resume is not None:
        _refuse_with_resume(
            backend=[name for name in backend or () if ":" not in name],
            source=source, op=op, dtype=dtype, variant=variant, limit=limit, corpus=corpus, tag=tag,
            case=case, shard=shard, last_failed=last_failed, changed_since=changed_since, cpu_level=cpu_level,
        )  # fmt: skip
        with Store(store, create=False) as db:
            record = db.run(resume)
            if not (record.options.get("backends") and record.options.get("sources")):
                raise InputError(f"run {record.run} does not say what it was asked for, so it cannot go on")
            hold_to(str(record.options.get("cpu_level", "native")))
            held = Held.of(expect, junit, annotations, record.options["backends"], f"run {record.run}")
            check_names("backend", backend or (), record.options["backends"], more=f"; run {record.run} has no other")
            given = pythons_of(python, record.options["backends"], executor) if python else {}
            check_consent(record.options, backend or (), given, f"run {record.run}")
            _check(record.options)
            workers.join()
            db.reopen(record.run)
            _tell_of_the_machine(db, record)
            return _go(db, record, workers, timeout, memory, held)
    if not backend and last_failed is None and changed_since is None:
        from torchstone.conformance.backends import names

        raise InputError(f"give at least one --backend (known: {', '.join(names())})")
    if not library_calls and backend:
        backend = [name if "+no-library-calls" in name else f"{name}+no-library-calls" for name in backend]
    if device is Device.cuda and backend:
        backend = [name if "+cuda" in name else f"{name}+cuda" for name in backend]
    options = options_of(
        backend=backend, source=source, corpus=corpus, op=op, dtype=dtype, variant=variant, limit=limit, tag=tag,
        case=case, shard=shard, last_failed=last_failed, changed_since=changed_since, store=store,
    )  # fmt: skip
    if cpu_level is not None and executor is not Executor.local:
        from torchstone.conformance.errors import InputError

        raise InputError("--cpu-level is for workers on this machine: start the nodes with $TORCHSTONE_CPU_LEVEL set")
    if (level := hold_to(cpu_level)) != "native":
        options["cpu_level"] = level
    if python:
        options["pythons"] = pythons_of(python, options["backends"], executor)
    held = Held.of(expect, junit, annotations, options["backends"], "this run")
    versions = _check(options)
    _variants(options)
    if (store or default_path()).exists():  # a store that cannot be used is said at once, an op that does not exist
        Store(store, readonly=True).close()  # only once the database is loaded; neither leaves a trace
    asked = _plan(options, store)
    workers.join()
    with Store(store) as db:
        from torchstone.conformance.execution.machine import machine

        command = shlex.join(["torchstone", *sys.argv[1:]])
        run_id = db.new_run(command, options, versions, device=_devices(options, versions), machine=machine())
        return _go(db, db.run(run_id), workers, timeout, memory, held, asked)


def _check(options: dict[str, Any]) -> dict[str, str]:
    """Raise InputError for whatever cannot be run, the cheap checks first; return the versions to record."""
    from torchstone.conformance.sources import FOLDER, SOURCES

    check_names("source", [name for name in options["sources"] if not name.startswith(FOLDER)], SOURCES)
    return check_backends(options["backends"], options.get("pythons", {}))


def _tell_of_the_machine(db: Store, record: Run) -> None:
    """Note, and say, that a run is resumed on another machine than it was begun on; its verdicts come from both."""
    from torchstone.conformance.execution.machine import differences, machine

    found = differences(record.machine, machine())
    for name, (before, now) in found.items():
        warn(f"warning: {record.run} was begun where {name} is {before}; here it is {now}")
    both = {name: f"{before}, then {now}" for name, (before, now) in found.items()}
    db.note_machine(record.run, record.machine | both)


def _devices(options: dict[str, Any], versions: dict[str, str]) -> str:
    """The devices that the backends of a run work on."""
    there = versions.get("device", Device.cuda)
    return ", ".join(dict.fromkeys(there if "+cuda" in name else "cpu" for name in options["backends"]))


def _plan(options: dict[str, Any], store: Path | Store | None) -> Plan:
    """What a run of these options asks; InputError where that is nothing."""
    from torchstone.conformance.selection.plan import plan
    from torchstone.conformance.store import Store

    options = options | {"variants": _variants(options)}
    if options.get("earlier") is None or isinstance(store, Store):
        return plan(options, store if isinstance(store, Store) else None)
    with Store(store, readonly=True) as db:
        return plan(options, db)


def _variants(options: dict[str, Any]) -> list[str]:
    """The variants asked for; runs of before there were any have the default one."""
    from torchstone.conformance.variants.registry import DEFAULT, VARIANTS

    wanted = options.get("variants", [DEFAULT])
    check_names("variant", wanted, [*VARIANTS, "all"])
    if "all" in wanted:
        return list(VARIANTS.usable())
    for name in wanted:
        VARIANTS.load(name)
    return wanted


def _go(
    db: Store, record: Run, where: Where, timeout: float, memory: float, held: Held, asked: Plan | None = None
) -> int:  # fmt: skip
    """Run, journal, show; whatever ends it, the store says how far it came."""
    from torchstone.cli.progress import Progress
    from torchstone.cli.summary import show_summary
    from torchstone.conformance.runner.run import run as run_cases

    options = record.options
    state = "interrupted"
    errors: dict[str, str] = {}
    try:
        with _sigterm_interrupts(), where.pools(db, record.run) as pool:
            asked = asked or _plan(options, db)
            for told in asked.damaged:
                warn(f"warning: left out: {told}")
            with Progress(options["backends"], asked.ops) as progress:
                summary = run_cases(
                    asked.entries,
                    options["backends"],
                    db,
                    record.run,
                    jobs=where.jobs,
                    timeout=timeout,
                    memory=int(memory * 2**30),
                    on_verdict=progress.add,
                    on_tick=progress.tick,
                    on_backend=progress.start,
                    wanted=asked.wanted,
                    pool=in_pythons(pool, options.get("pythons", {})),
                )
        state, errors = "finished", summary.errors
    except KeyboardInterrupt:
        state = "interrupted"
    finally:
        db.finish(record.run, state, errors)
    show_summary(db, record.run)
    for name, reason in errors.items():
        warn(f"error: {name}: {reason}")
    if state == "interrupted":
        command = ["torchstone", "run", "--resume", record.run, "--store", str(db.path)]
        command += [word for name in options["backends"] if ":" in name for word in ("--backend", name)]
        command += [word for pair in options.get("pythons", {}).items() for word in ("--python", "=".join(pair))]
        warn(f"interrupted; the results so far are kept. To go on:\n  {shell(command)}")
        return INTERRUPTED
    well = conclude(held, db, record.run)
    return OK if well and not errors else FAILURES


def _jobs(text: str, memory: float = 8.0) -> int:
    from torchstone.conformance.errors import InputError

    if text == "auto":
        from torchstone.conformance.runner.resources import fitting_jobs

        return fitting_jobs(int(memory * 2**30))
    if not text.isdigit() or int(text) < 1:
        raise InputError(f'--jobs takes a number from 1 or auto, got "{text}"')
    return int(text)


def _refuse_with_resume(**given: object) -> None:
    from torchstone.conformance.errors import InputError

    for name, value in given.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} cannot go with --resume: a run is resumed with the options it was started with")


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let a polite kill end the run as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
