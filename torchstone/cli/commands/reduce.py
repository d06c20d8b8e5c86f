"""``torchstone reduce``: from a failing case to a script that a maintainer can paste."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.commands.replay import check_case, find_case, interpreters
from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import OpsFromOption, StoreOption, load_ops, parse_duration
from torchstone.cli.output import FormatOption, TableFormat, say, show_table, warn
from torchstone.cli.paths import input_file, output_folder
from torchstone.cli.workers import (
    PythonOption,
    check_backend_names,
    check_consent,
    check_usable,
    parse_pythons,
    sigterm_interrupts,
    worker_count,
)
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.escape import file_name, one_line, visible
from torchstone.conformance.files import prepare_folder
from torchstone.reducers.engine import Budget

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case
    from torchstone.reducers.failure import Reduction
    from torchstone.reducers.script_run import ScriptRun

MlirOption = Annotated[
    Path | None, input_file("--mlir", help="An MLIR module to shrink with its --pipeline, in place of a case.")
]
PipelineOption = Annotated[str, typer.Option("--pipeline", help="With --mlir: the passes that the module fails in.")]
ValuesOption = Annotated[bool, typer.Option("--values", help="With --mlir: the pipeline changes what is computed.")]
EntryOption = Annotated[str, typer.Option("--entry", help="With --values: the function to call.")]
ToleranceOption = Annotated[
    float, typer.Option("--tolerance", min=0, help="With --values: of the largest number, what is the same.")
]
TestOption = Annotated[
    str | None,
    typer.Option("--test", help="With --mlir: a shell command that ends with 0 if $MODULE with $PIPELINE fails."),
]


def reduce(
    case: Annotated[str | None, typer.Argument(metavar="FILE|CASE", help="A saved case, or a case's id.")] = None,
    backend: Annotated[str, typer.Option("--backend", "-b", help="Backend it fails on.")] = "",
    run: Annotated[str | None, typer.Option("--run", help="Take the stored case of this run.")] = None,
    ops_from: OpsFromOption = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Reduce all failures of a run (the last, or --run) on the backend, each bug once."),
    ] = False,
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", help="With --all: only failures of this outcome, as mismatch or crash; repeatable."),
    ] = None,
    time: Annotated[str, typer.Option("--time", help="How long for a failure: 60s, 10m.")] = "5m",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Cases to try for a failure, at most.")] = 2000,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Seconds a trial may take [default: 60, with --mlir 20].")
    ] = None,
    jobs: Annotated[
        str, typer.Option("--jobs", "-j", help="Workers that try candidates ahead of their turn: a number, or auto.")
    ] = "1",
    out: Annotated[
        Path | None,
        output_folder("--out", help="Folder to write to [default: .torchstone/reduced/CASE, or /BACKEND with --all]."),
    ] = None,
    keep: Annotated[
        Path | None, output_folder("--keep", help="Folder to add the reduced case to, for `torchstone run --corpus`.")
    ] = None,
    python: PythonOption = None,
    form: FormatOption = TableFormat.table,
    mlir: MlirOption = None,
    pipeline: PipelineOption = "",
    values: ValuesOption = False,
    entry: EntryOption = "main",
    tolerance: ToleranceOption = 1e-4,
    test: TestOption = None,
    store: StoreOption = None,
) -> int:
    """Shrink a failing case to a standalone script. Exit code 0 if a fresh worker confirms it, 1 if not.

    A reduction that was cut off goes on from the simplest case it had found when the same command is given again.
    With --jobs it ends at the same case, sooner.

    With --all: 0 if all are confirmed, and their scripts, once run, show what fails. What an earlier command has left
    in --out is not done again.

    With --mlir: shrink a module and its pass pipeline that crash, fail, hang, or change what is computed.
    """
    budget = parse_duration(time)
    _check_module_options(mlir, [case, backend, every, outcome, keep, run], [pipeline, values, test])
    if mlir is not None:
        from torchstone.cli.module_reduction import TIMEOUT, Asked, reduce_module

        limit = timeout or TIMEOUT
        return reduce_module(Asked(mlir, pipeline, values, test, entry, tolerance, trials, budget, limit, out))
    timeout = timeout or 60.0
    workers = worker_count(jobs)
    _check_combination(case, backend, every, outcome, keep)
    load_ops(ops_from)
    if every:
        pythons = parse_pythons(python or [], [backend])
        how = How(backend, Budget(trials, budget), timeout, pythons.get(backend), workers)
        return _all(how, run, outcome or [], out, form, store)
    pythons = interpreters(backend, python, run, store)
    found = _found(case or "", backend, pythons, store, run)
    return _one(found, How(backend, Budget(trials, budget), timeout, pythons.get(backend), workers), out, keep)


@dataclass(frozen=True)
class How:
    """In what way, and how far, cases are reduced."""

    backend: str
    budget: Budget
    timeout: float
    python: str | None
    jobs: int


def _one(found: Case, how: How, out: Path | None, keep: Path | None) -> int:
    """Reduce one case, and write and show what is left."""
    from torchstone.reducers.blame import blamed
    from torchstone.reducers.failure import reduce_case
    from torchstone.reducers.progress import Progress
    from torchstone.reducers.write import add_to_corpus, confirm_script, write_reduction

    folder = prepare_folder(out or Path(".torchstone/reduced") / file_name(found.id, how.backend))
    if keep is not None:
        prepare_folder(keep)
    live = sys.stderr.isatty()
    progress = Progress(folder, found, how.backend)
    if so_far := progress.read():
        warn(f"going on from the case in {progress.path}")
    with sigterm_interrupts():
        reduction = reduce_case(
            found,
            how.backend,
            budget=how.budget,
            timeout=how.timeout,
            python=how.python,
            jobs=how.jobs,
            progress=lambda step: warn(f"  {step.name}: {_size(step.size)}") if live else None,
            so_far=so_far,
            keep=progress.write,
        )
        reduction = reduction if how.python else blamed(reduction, how.timeout)
        write_reduction(reduction, folder)
        progress.end()
        ran = confirm_script(reduction, folder, how.python)
    _show(reduction, folder, ran)
    if keep is not None and reduction.confirmed:
        say(f"kept      {add_to_corpus(reduction, keep)}")
    return OK if reduction.confirmed and ran.shows else FAILURES


def _check_module_options(mlir: Path | None, of_cases: list[Any], of_modules: list[Any]) -> None:
    """Raise InputError for options of cases beside a module, and of modules without one."""
    if mlir is not None and any(of_cases):
        raise InputError("--mlir is for a module: give it no case, --backend, --run, --all, --outcome or --keep")
    if mlir is None and any(of_modules):
        raise InputError("--pipeline, --values and --test speak of a module: give it with --mlir FILE")


def _found(case: str, backend: str, pythons: dict[str, str], store: Path | None, run: str | None) -> Case:
    """Return the case that is meant; what is misspelt is said before PyTorch is loaded. Raises InputError."""
    check_backend_names({backend} - set(pythons))
    check_case(case, store, run)
    check_usable([backend], pythons)
    return find_case(case, store, run)


def _check_combination(
    case: str | None, backend: str, every: bool, outcomes: list[str] | None, keep: Path | None
) -> None:
    """Raise InputError for options that are missing, or do not go together."""
    if not backend:
        raise InputError("give the --backend that it fails on")
    if (case is None) is not every:
        raise InputError("give a case, or --all for the failures of a run, and not both")
    if outcomes and not every:
        raise InputError("--outcome is for --all: a case fails as it does")
    if every and keep is not None:
        raise InputError("--keep is for one case: copy the case.safetensors that --all writes")


def _all(how: How, run: str | None, outcomes: list[str], out: Path | None, form: TableFormat, path: Path | None) -> int:
    """Reduce the failures of a run, telling each as it is done, and list them."""
    from torchstone.conformance.store import Store

    backend, python = how.backend, how.python
    with Store(path, readonly=True) as db:
        record = db.run(run)
        tried = record.options.get("backends") or []
        if backend not in tried:
            raise UnknownName("backend", backend, tried, more=f"; run {record.run} has no other")
        stored = {"pythons": record.options.get("pythons", {}), "backends": [backend]}
        if python is None:
            check_consent(stored, [backend], {}, f"run {record.run}")
        check_usable([backend], {backend: python} if python else {})
        from torchstone.reducers.batch import REDUCED, distinct_failures, reduce_failures

        for name in outcomes:
            if name not in REDUCED:
                raise UnknownName("outcome", name, REDUCED, more=": what can be reduced")
        folder = prepare_folder(out or Path(".torchstone/reduced") / file_name(backend))
        failures = distinct_failures(db.iter_verdicts(record.run), backend)
        failures = [failure for failure in failures if not outcomes or failure.signature.outcome in outcomes]
        rows = []
        made = reduce_failures(
            db, record.run, failures, folder, budget=how.budget, timeout=how.timeout, python=python, jobs=how.jobs
        )
        for at, (failure, result, before) in enumerate(made, 1):
            row = {"failure": failure.name, "cases": len(failure.cases), "state": _state(result)}
            row |= {"trials": result.get("trials"), "seconds": result.get("seconds"), "message": _message(result)}
            rows.append(row)
            past = " (done before)" if before else ""
            warn(f"{at} of {len(failures)}: {failure.name}: {row['state']}{past}")
    show_table(rows, ("failure", "cases", "state", "trials", "seconds", "message"), form)
    return OK if all(row["state"] == "shown" or row["state"].startswith("same as") for row in rows) else FAILURES


def _state(record: dict[str, Any]) -> str:
    if "not_reduced" in record:
        return "not reduced"
    if not record["script"]["shows"]:
        return "script does not show it"
    if not record["confirmed"]:
        return "not confirmed"
    return f"same as {record['same_as']}" if record["same_as"] else "shown"


def _message(record: dict[str, Any]) -> str:
    lines = str(record.get("not_reduced") or record.get("message") or "").splitlines()
    return lines[0][:100] if lines else ""


def _size(size: tuple) -> str:
    return f"{size[0]} calls, {size[2]} inputs, {size[3]} elements"


def _show(reduction: Reduction, folder: Path, ran: ScriptRun) -> None:
    from torchstone.reducers.write import measure_case

    before, after = measure_case(reduction.original), measure_case(reduction.case)
    say(f"failure   {visible(str(reduction.signature))}")
    for what in ("calls", "elements"):
        say(f"{what:<9} {before[what]} -> {after[what]}")
    for line in after["program"]:
        say(f"program   {line}")
    for name, tensor in reduction.case.inputs.items():
        say(f"input     {name}: {str(tensor.dtype)[6:]}{list(tensor.shape)}")
    say(f"search    {reduction.trials} trials, {reduction.seconds:.1f} s, {_ended(reduction)}")
    if reduction.blame:
        say(f"blame     {one_line(reduction.blame)}")
    say(f"script    {_told(ran)}")
    say(f"written   {folder}")


def _told(ran: ScriptRun) -> str:
    if ran.shows:
        return "shows the failure in a process of its own"
    end = "hangs" if ran.code is None else f"exits with {ran.code}"
    return f"does NOT show the failure in a process of its own: it {end}. {one_line(ran.tail)}".rstrip()


def _ended(reduction: Reduction) -> str:
    end = "nothing more to take away" if reduction.complete else "stopped by its budget"
    return f"{end}, {'confirmed' if reduction.confirmed else 'NOT confirmed'} in a fresh worker"
