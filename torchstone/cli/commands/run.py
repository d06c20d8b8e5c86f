"""``torchstone run``: the conformance suite, from the command line to the store."""

from __future__ import annotations

import contextlib
import errno
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.errors import FAILURES, INTERRUPTED, OK
from torchstone.cli.expectation_report import (
    Annotations,
    AnnotationsOption,
    Baseline,
    ExpectOption,
    JunitOption,
    conclude_run,
)
from torchstone.cli.options import CpuLevelOption, NewStoreOption, TimeoutOption, check_known, set_cpu_level
from torchstone.cli.output import warn
from torchstone.cli.selection_options import (
    BackendsOption,
    CasesOption,
    ChangedSinceOption,
    CorpusOption,
    DtypesOption,
    EffortOption,
    LastFailedOption,
    LimitOption,
    OpsOption,
    ShardOption,
    SourcesOption,
    TagsOption,
    VariantsOption,
    check_names,
    check_options,
    run_options,
)
from torchstone.cli.workers import (
    AddressOption,
    Executor,
    ExecutorOption,
    PythonOption,
    Workplace,
    check_consent,
    parse_pythons,
    pool_with_pythons,
    sigterm_interrupts,
)
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import shell_command

FULL = (errno.ENOSPC, errno.EDQUOT)

if TYPE_CHECKING:
    from torchstone.conformance.selection.selection import Selection
    from torchstone.conformance.store import RunRecord, Store


JobsOption = Annotated[
    str,
    typer.Option(
        "--jobs",
        "-j",
        help="Worker processes: a number, or auto, as many as fit: one a core, by affinity and quota, and as many "
        "times --memory as is available, by the system and the control group; one at least.",
    ),
]
ResumeOption = Annotated[
    str | None, typer.Option("--resume", help="Go on with this run (or latest): same options, only what is missing.")
]


class Device(StrEnum):
    """Where backends run that can run in several places."""

    cpu = "cpu"
    cuda = "cuda"


def run(
    backend: BackendsOption = None,
    source: SourcesOption = None,
    corpus: CorpusOption = None,
    op: OpsOption = None,
    tag: TagsOption = None,
    case: CasesOption = None,
    dtype: DtypesOption = None,
    variant: VariantsOption = None,
    effort: EffortOption = None,
    limit: LimitOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print which cases would be asked, and why; run none.")] = False,
    shard: ShardOption = None,
    last_failed: LastFailedOption = None,
    changed_since: ChangedSinceOption = None,
    python: PythonOption = None,
    jobs: JobsOption = "auto",
    executor: ExecutorOption = Executor.local,
    address: AddressOption = None,
    timeout: TimeoutOption = 60.0,
    memory: Annotated[float, typer.Option("--memory", min=0.5, help="GiB of memory a worker may take.")] = 8.0,
    library_calls: Annotated[
        bool, typer.Option("--library-calls/--no-library-calls", help="Let the compiler call LibTorch for hard ops.")
    ] = True,
    device: Annotated[
        Device,
        typer.Option("--device", help="Where the backends run: cuda is their option +cuda, of those that have it."),
    ] = Device.cpu,
    cpu_level: CpuLevelOption = None,
    store: NewStoreOption = None,
    resume: ResumeOption = None,
    expect: ExpectOption = None,
    junit: JunitOption = None,
    annotations: AnnotationsOption = Annotations.auto,
) -> int:
    """Run the conformance suite on one or more backends."""
    how = _How(
        Workplace(executor, address, jobs, memory), timeout, memory, python, cpu_level, expect, junit, annotations
    )
    asked: dict[str, Any] = {
        "source": source, "corpus": corpus, "op": op, "dtype": dtype, "variant": variant, "limit": limit, "tag": tag,
        "effort": effort, "case": case, "shard": shard, "last_failed": last_failed, "changed_since": changed_since,
    }  # fmt: skip
    if plan:
        return _show(run_options(backend=backend, store=store, **asked), store)
    if resume is not None:
        registered = [name for name in backend or () if ":" not in name]
        _refuse_with_resume(backend=registered, **asked, cpu_level=cpu_level)
        return _resume(resume, backend or [], store, how)
    if not backend and last_failed is None and changed_since is None:
        from torchstone.conformance.backends import backend_names

        raise InputError(f"give at least one --backend (known: {', '.join(backend_names())})")
    suffixes = ["+no-library-calls"] * (not library_calls) + ["+cuda"] * (device is Device.cuda)
    for suffix in suffixes:
        backend = [name if suffix in name else f"{name}{suffix}" for name in backend or ()]
    return _begin(run_options(backend=backend, store=store, **asked), store, how)


def _show(options: dict[str, Any], store: Path | None) -> int:
    """Print what a run of these options would ask."""
    from torchstone.cli.plan_listing import show_plan

    show_plan(_plan(options, store).entries())
    return OK


@dataclass(frozen=True)
class _How:
    """How a run is run and judged, whatever it asks. ``timeout`` is in seconds, ``memory`` in GiB."""

    workers: Workplace
    timeout: float
    memory: float
    python: list[str] | None
    cpu_level: str | None
    expect: list[Path] | None
    junit: Path | None
    annotations: Annotations

    def baseline(self, backends: list[str], run: str) -> Baseline:
        return Baseline.of(self.expect, self.junit, self.annotations, backends, run)

    def pythons(self, backends: list[str]) -> dict[str, str]:
        return parse_pythons(self.python, backends, self.workers.executor) if self.python else {}


def _resume(run_id: str, backends: list[str], store: Path | None, how: _How) -> int:
    """Go on with a stored run. ``backends`` are those of ``module:attribute`` that the user consents to load again."""
    from torchstone.conformance.store import Store

    with Store(store, create=False) as db:
        record = db.run(run_id)
        if not (record.options.get("backends") and record.options.get("sources")):
            raise InputError(f"run {record.run} does not say what it was asked for, so it cannot go on")
        set_cpu_level(str(record.options.get("cpu_level", "native")))
        baseline = how.baseline(record.options["backends"], f"run {record.run}")
        check_known("backend", backends, record.options["backends"], more=f"; run {record.run} has no other")
        check_consent(record.options, backends, how.pythons(record.options["backends"]), f"run {record.run}")
        check_options(record.options)
        selection = _plan(record.options, db)  # what makes the cases is forked before a cluster starts threads
        how.workers.join()
        db.reopen(record.run)
        _warn_of_other_machine(db, record)
        return _execute(db, record, how, baseline, selection)


def _begin(options: dict[str, Any], store: Path | None, how: _How) -> int:
    """Check all that can be checked before anything is written, then make a run in the store and run it."""
    from torchstone.conformance.store import Store, check_store, default_path

    if how.cpu_level is not None and how.workers.executor is not Executor.local:
        raise InputError("--cpu-level is for workers on this machine: start the nodes with $TORCHSTONE_CPU_LEVEL set")
    if (level := set_cpu_level(how.cpu_level)) != "native":
        options["cpu_level"] = level
    check_names({**options, "pythons": dict.fromkeys(text.partition("=")[0] for text in how.python or ())})
    if how.python:
        options["pythons"] = how.pythons(options["backends"])
    if store is None:
        check_store(default_path(), create=True, write=True)
    baseline = how.baseline(options["backends"], "this run")
    versions = check_options(options)
    _variants(options)
    selection = _plan(options, store)
    how.workers.join()
    from torchstone.conformance.execution.machine import machine_facts

    with Store(store) as db:
        command = shlex.join(["torchstone", *sys.argv[1:]])
        run_id = db.new_run(command, options, versions, device=_devices(options, versions), machine=machine_facts())
        return _execute(db, db.run(run_id), how, baseline, selection)


def _warn_of_other_machine(db: Store, record: RunRecord) -> None:
    """Note, and say, that a run is resumed on another machine than it was begun on; its verdicts come from both."""
    from torchstone.conformance.execution.machine import differing_facts, machine_facts

    found = differing_facts(record.machine, machine_facts())
    for name, (before, now) in found.items():
        warn(f"warning: {record.run} was begun where {name} is {before}; here it is {now}")
    both = {name: f"{before}, then {now}" for name, (before, now) in found.items()}
    db.note_machine(record.run, record.machine | both)


def _devices(options: dict[str, Any], versions: dict[str, str]) -> str:
    """The devices that the backends of a run work on."""
    there = versions.get("device", Device.cuda)
    return ", ".join(dict.fromkeys(there if "+cuda" in name else "cpu" for name in options["backends"]))


def _plan(options: dict[str, Any], store: Path | Store | None) -> Selection:
    """What a run of these options asks; InputError where that is nothing."""
    from torchstone.conformance.selection.selection import select_cases
    from torchstone.conformance.store import Store

    options = options | {"variants": _variants(options)}
    if options.get("earlier") is None or isinstance(store, Store):
        return select_cases(options, store if isinstance(store, Store) else None)
    with Store(store, readonly=True) as db:
        return select_cases(options, db)


def _variants(options: dict[str, Any]) -> list[str]:
    """The variants asked for; runs of before there were any have the default one."""
    from torchstone.conformance.variants.registry import DEFAULT, VARIANTS

    wanted = options.get("variants", [DEFAULT])
    check_known("variant", wanted, [*VARIANTS, "all"])
    if "all" in wanted:
        return list(VARIANTS.usable())
    for name in wanted:
        VARIANTS.load(name)
    return wanted


def _execute(db: Store, record: RunRecord, how: _How, baseline: Baseline, selection: Selection) -> int:
    """Run, journal, show; whatever ends it, the store says how far it came."""
    from torchstone.cli.progress import show_summary
    from torchstone.conformance.store import StoreError

    state = "interrupted"
    errors: dict[str, str] = {}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            errors = _try_cases(db, record, how, selection)
            state = "finished"
        db.finish(record.run, state, errors)
    except BaseException as error:
        db.abandon(record.run)
        if isinstance(error, StoreError) or (isinstance(error, OSError) and error.errno in FULL):
            again = f"Make room, then go on: {_resume_command(db, record)}"
            raise InputError(f"{error}; run {record.run} keeps what was written until then. {again}") from error
        raise
    show_summary(db, record.run)
    for name, reason in errors.items():
        warn(f"error: {name}: {reason}")
    if state == "interrupted":
        warn(f"interrupted; the results so far are kept. To go on:\n  {_resume_command(db, record)}")
        return INTERRUPTED
    well = conclude_run(baseline, db, record.run)
    return OK if well and not errors else FAILURES


def _try_cases(db: Store, record: RunRecord, how: _How, selection: Selection) -> dict[str, str]:
    """Try what is missing of a run; return the reasons of the backends that could not be run to the end."""
    from torchstone.cli.progress import Progress
    from torchstone.conformance.runner.run import run_cases

    options = record.options
    with sigterm_interrupts(), how.workers.pools(db, record.run) as pool:
        for problem in selection.damaged:
            warn(f"warning: left out: {problem}")
        with Progress(options["backends"], selection.ops) as progress:
            summary = run_cases(
                selection.entries,
                options["backends"],
                db,
                record.run,
                jobs=how.workers.jobs,
                timeout=how.timeout,
                memory=int(how.memory * 2**30),
                on_verdict=progress.add,
                on_tick=progress.tick,
                on_backend=progress.start,
                on_note=warn,
                wanted=selection.wanted,
                pool=pool_with_pythons(pool, options.get("pythons", {})),
            )
    return summary.errors


def _resume_command(db: Store, record: RunRecord) -> str:
    options = record.options
    command = ["torchstone", "run", "--resume", record.run, "--store", str(db.path)]
    command += [word for name in options["backends"] if ":" in name for word in ("--backend", name)]
    command += [word for pair in options.get("pythons", {}).items() for word in ("--python", "=".join(pair))]
    return shell_command(command)


def _refuse_with_resume(**given: object) -> None:
    for name, value in given.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} cannot go with --resume: a run is resumed with the options it was started with")
