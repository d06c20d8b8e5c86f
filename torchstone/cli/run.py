"""``torchstone run``: the conformance suite, from the command line to the store."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.errors import FAILURES, INTERRUPTED, OK
from torchstone.cli.judgement import Annotations, AnnotationsOption, ExpectOption, Held, JunitOption, conclude
from torchstone.cli.options import StoreOption, check_dtypes, check_names

if TYPE_CHECKING:
    from torchstone.conformance.store import Run, Store


def run(
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="Backend to try; repeatable. Names or module:attribute.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Where cases come from: opinfo (default), modules, models, errors; repeatable."),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Op or shell pattern; repeatable [default: all].")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", help="Dtype, or all; repeatable [default: float32].")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="How a case is asked: default, strided, transposed, expanded, offset, channels_last, special, "
            "extremes, scalar, empty, single, odd, dynamic, batch, backward, or all; repeatable [default: default].",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="First samples only, per op and dtype.")] = None,
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="Worker processes: a number, or auto.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a case may take.")] = 60.0,
    memory: Annotated[float, typer.Option("--memory", min=0.5, help="GiB of memory a worker may take.")] = 8.0,
    library_calls: Annotated[
        bool, typer.Option("--library-calls/--no-library-calls", help="Let the compiler call LibTorch for hard ops.")
    ] = True,
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
    from torchstone.conformance.store import Store, default_path

    workers = _jobs(jobs)
    if resume is not None:
        _refuse_with_resume(backend=backend, source=source, op=op, dtype=dtype, variant=variant, limit=limit)
        with Store(store, create=False) as db:
            record = db.run(resume)
            held = Held.of(expect, junit, annotations, record.options["backends"], f"run {record.run}")
            _check(record.options)
            db.reopen(record.run)
            return _go(db, record, workers, timeout, memory, held)
    if not backend:
        from torchstone.conformance.backends import names
        from torchstone.conformance.errors import InputError

        raise InputError(f"give at least one --backend (known: {', '.join(names())})")
    if not library_calls:
        backend = [name if "+no-library-calls" in name else f"{name}+no-library-calls" for name in backend]
    options: dict[str, Any] = {
        "backends": list(dict.fromkeys(backend)),
        "sources": list(dict.fromkeys(source or ["opinfo"])),
        "ops": op,
        "dtypes": check_dtypes(dtype or ["float32"]),
        "variants": list(dict.fromkeys(variant or ["default"])),
        "limit": limit,
    }
    held = Held.of(expect, junit, annotations, options["backends"], "this run")
    versions = _check(options)
    _variants(options)
    if (store or default_path()).exists():  # a store that cannot be used is said at once, an op that does not exist
        Store(store, readonly=True).close()  # only once the database is loaded; neither leaves a trace
    _ops(options)
    with Store(store) as db:
        run_id = db.new_run(shlex.join(["torchstone", *sys.argv[1:]]), options, versions, device="cpu")
        return _go(db, db.run(run_id), workers, timeout, memory, held)


def _check(options: dict[str, Any]) -> dict[str, str]:
    """Raise InputError for whatever cannot be run, the cheap checks first; return the versions to record."""
    from torchstone.conformance.backends import check, load
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.sources import SOURCES

    check_names("source", options["sources"], SOURCES)
    for name in options["backends"]:
        check(name)
    versions: dict[str, str] = {}
    for name in options["backends"]:
        backend = load(name)
        state = backend.available()
        if not state.ok:
            how = f"; install it with: {state.install}" if state.install else ""
            raise InputError(f'backend "{name}" cannot be used here: {state.reason}{how}')
        versions |= backend.versions()
    return _versions() | versions


def _ops(options: dict[str, Any]) -> dict[str, list[str]]:
    from torchstone.conformance.sources import select

    return select(options["sources"], options["ops"])


def _variants(options: dict[str, Any]) -> list[str]:
    """The variants asked for; runs of before there were any have the default one."""
    from torchstone.conformance.variants import DEFAULT, VARIANTS

    wanted = options.get("variants", [DEFAULT])
    every = [DEFAULT, *VARIANTS]
    check_names("variant", wanted, [*every, "all"])
    return every if "all" in wanted else wanted


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    return {name: version(name) for name in ("torchstone", "torch")} | {"python": platform.python_version()}


def _go(db: Store, record: Run, jobs: int, timeout: float, memory: float, held: Held) -> int:
    """Run, journal, show; whatever ends it, the store says how far it came."""
    from torchstone.cli.progress import Progress
    from torchstone.cli.summary import show_summary
    from torchstone.conformance.runner import run as run_cases
    from torchstone.conformance.sources import iterate

    options = record.options
    state = "interrupted"
    errors: dict[str, str] = {}
    try:
        with _sigterm_interrupts():
            ops = _ops(options)
            with Progress(options["backends"], [op for names in ops.values() for op in names]) as progress:
                summary = run_cases(
                    lambda: iterate(ops, options["dtypes"], options["limit"], _variants(options)),
                    options["backends"],
                    db,
                    record.run,
                    jobs=jobs,
                    timeout=timeout,
                    memory=int(memory * 2**30),
                    on_verdict=progress.add,
                    on_tick=progress.tick,
                    on_backend=progress.start,
                )
        state, errors = "finished", summary.errors
    except KeyboardInterrupt:
        state = "interrupted"
    finally:
        db.finish(record.run, state, errors)
    show_summary(db, record.run)
    for name, reason in errors.items():
        print(f"error: {name}: {reason}", file=sys.stderr)
    if state == "interrupted":
        command = ["torchstone", "run", "--resume", record.run, "--store", str(db.path)]
        print(f"interrupted; the results so far are kept. To go on:\n  {shlex.join(command)}", file=sys.stderr)
        return INTERRUPTED
    well = conclude(held, db, record.run)
    return OK if well and not errors else FAILURES


def _jobs(text: str) -> int:
    from torchstone.conformance.errors import InputError

    if text == "auto":
        return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if not text.isdigit() or int(text) < 1:
        raise InputError(f'--jobs takes a number from 1 or auto, got "{text}"')
    return int(text)


def _refuse_with_resume(**given: object) -> None:
    from torchstone.conformance.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"--{name} cannot go with --resume: a run is resumed with the options it was started with")


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
