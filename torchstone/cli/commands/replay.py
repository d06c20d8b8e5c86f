"""``torchstone replay``: one case again, alone in a fresh worker, with everything that explains the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import (
    DTYPES,
    CpuLevelOption,
    OpsFromOption,
    StoreOption,
    check_known,
    load_ops,
    set_cpu_level,
)
from torchstone.cli.output import say, write_raw
from torchstone.cli.workers import PythonOption, check_backend_names, check_consent, check_usable, parse_pythons
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.escape import visible
from torchstone.conformance.sources import SOURCES, check_ops
from torchstone.conformance.sources.names import DATABASES
from torchstone.conformance.store import Store, default_path

WIDTH = 100

if TYPE_CHECKING:
    from torchstone.conformance.execution.verdict import Verdict
    from torchstone.conformance.program.case import Case


def replay(
    case: Annotated[str, typer.Argument(metavar="FILE|CASE", help="A saved case, or a case's id.")],
    backend: Annotated[str, typer.Option("--backend", "-b", help="Backend to try it on.")],
    run: Annotated[str | None, typer.Option("--run", help="Take the stored case of this run.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds the case may take.")] = 60.0,
    memory: Annotated[float, typer.Option("--memory", min=0.5, help="GiB of memory the worker may take.")] = 8.0,
    cpu_level: CpuLevelOption = None,
    python: PythonOption = None,
    store: StoreOption = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="FILE|CASE", help="Try this one before, in the same worker; repeatable."),
    ] = None,
    ops_from: OpsFromOption = None,
    script: Annotated[
        bool,
        typer.Option(
            "--script",
            help="Print the case as a standalone script; run nothing. It looks at what a stored verdict of the backend "
            "names; without one it compares all results.",
        ),
    ] = False,
) -> int:
    """Try a case again, alone or after others, and show the evidence. Exit code 0 if it gives what eager gives, else 1.

    With --after: after these, in their order, in one fresh worker.
    """
    from torchstone.conformance.execution.verdict import CORRECT

    set_cpu_level(cpu_level)
    load_ops(ops_from)
    pythons = interpreters(backend, python, run, store)
    check_backend_names({backend} - set(pythons))
    for name in (*(after or ()), case):
        check_case(name, store, run)
    if script:  # which needs no backend: it says how its users reach it
        from torchstone.conformance.repro.script import render_script

        failed, verdict = find_failure(case, backend, store, run) or (find_case(case, store, run), None)
        told = render_script(failed, backend, verdict)
        write_raw(told)  # nothing in it is a command, and no word of it may be another
        return OK
    check_usable([backend], pythons)
    found = find_case(case, store, run)
    from torchstone.conformance.runner.pool import Pool
    from torchstone.conformance.runner.run import in_sequence

    with Pool(backend, python=pythons.get(backend), timeout=timeout, memory=int(memory * 2**30), retry=False) as pool:
        verdict = in_sequence(pool, [*(find_case(name, store, run) for name in after or ()), found])
    if verdict is None:
        raise InputError("a case before it ended the worker: there is none that both were tried in")
    show_verdict(found, verdict)
    return OK if verdict.outcome in CORRECT else FAILURES


def interpreters(backend: str, given: list[str] | None, run: str | None, store: Path | None) -> dict[str, str]:
    """Return the interpreter of the backend if it has one of its own.

    Raises InputError where the run that is named had one and none is given: a store runs nothing unasked.
    """
    pythons = parse_pythons(given or [], [backend])
    if run is not None and not pythons:
        with Store(store, readonly=True) as db:
            record = db.run(run)
        stored = {"pythons": record.options.get("pythons", {}), "backends": [backend]}
        check_consent(stored, [backend], {}, f"run {record.run}")
    return pythons


def check_case(name: str, store: Path | None = None, run: str | None = None) -> None:
    """Raise InputError for a case that ``find_case`` does not find, as far as that is known without PyTorch."""
    if Path(name).is_file():
        return
    source, *rest = name.split(":")
    if not rest:
        raise InputError(f'"{name}" is neither a file nor a case id like opinfo:softmax:float32:0')
    known: list[str] = []
    if store is not None or run is not None or default_path().exists():
        with Store(store, readonly=True) as db:
            if db.case_bytes(name, run) is not None:
                return
            known = list(db.case_ids(run))
    if source not in SOURCES:
        raise UnknownName("case", name, known)
    check_ops([source], rest[:1])
    if source in DATABASES:
        check_known("dtype", rest[1:2], DTYPES)


def find_failure(
    name: str, backend: str, store: Path | None = None, run: str | None = None
) -> tuple[Case, Verdict] | None:
    """Return a case that failed on a backend, as a store has it, and the verdict: the newest, unless a run is named.

    None where no store has any. Raises InputError for a case that does not read.
    """
    path = store or default_path()
    if Path(name).is_file() or (store is None and run is None and not path.exists()):
        return None
    with Store(path, readonly=True) as db:
        found = db.failure(name, backend, run)
    if found is None:
        return None
    verdict, data = found
    return _read(data), verdict


def find_case(name: str, store: Path | None = None, run: str | None = None) -> Case:
    """Return the case in a file, in a store (the newest stored form unless a run is named), or in its source.

    Raises InputError when there is none, saying why.
    """
    from torchstone.conformance.sources import find_case as from_source

    if Path(name).is_file():
        return _read(Path(name))
    path = store or default_path()
    if store is not None or run is not None or path.exists():
        with Store(path, readonly=True) as db:
            data = db.case_bytes(name, run)
            if data is not None:
                return _read(data)
    return from_source(name)


def _read(data: bytes | Path) -> Case:
    from torchstone.conformance.program.case import Case, CaseError

    try:
        return Case.from_bytes(data) if isinstance(data, bytes) else Case.load(data)
    except CaseError as error:
        raise InputError(str(error)) from error


def show_verdict(case: Case, verdict: Verdict) -> None:
    """Print the program, the inputs' shapes, the verdict and its evidence."""
    say(f"case     {visible(verdict.case_id)}")
    for name, tensor in case.inputs.items():
        layout = "" if tensor.is_contiguous() else f" strides {tuple(tensor.stride())}"
        say(f"input    {name}: {str(tensor.dtype)[6:]}{list(tensor.shape)}{layout}")
    for line in str(case.program).splitlines():
        say(f"program  {line}")
    say(f"backend  {visible(verdict.backend)}")
    kind = f" ({verdict.kind})" if verdict.kind else ""
    say(f"verdict  {verdict.outcome}{kind} at stage {verdict.stage} after {verdict.seconds:.3f} s")
    for line in verdict.message.splitlines():
        say(f"message  {line}")
    for name, value in verdict.evidence.items():
        lines = _lines(value)
        say(f"evidence {visible(name)}: {lines[0] if len(lines) == 1 else ''}".rstrip())
        for line in lines if len(lines) > 1 else []:
            say(f"         {line}")


def _lines(value: object) -> list[str]:
    """A value of the evidence as lines: a list's items and a dict's entries one a line, but for short ones."""
    if isinstance(value, str):
        return value.splitlines() or [""]
    whole = json.dumps(value)
    if len(whole) <= WIDTH or not isinstance(value, dict | list):
        return [whole]
    if isinstance(value, dict):
        return [f"{key}: {item if isinstance(item, str) else json.dumps(item)}" for key, item in value.items()]
    return [json.dumps(item) for item in value]
