"""Where the workers of a run are: on this machine or a Ray cluster, and in which Python (``--python NAME=PATH``)."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.output import warn

if TYPE_CHECKING:
    from torchstone.conformance.runner.run import Workers
    from torchstone.conformance.store import Store


class Executor(StrEnum):
    """What starts the workers."""

    local = "local"
    ray = "ray"


ExecutorOption = Annotated[
    Executor, typer.Option("--executor", help="Where the workers are: this machine, or a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster, HOST:PORT, or local for a new one [default: $RAY_ADDRESS, one here, a new one].",
    ),
]


class Workplace:
    """The executor that the options mean. ``jobs`` is None for every CPU of a cluster. Raises ``InputError``."""

    def __init__(self, executor: Executor, address: str | None, jobs: str, memory: float = 8.0) -> None:
        from torchstone.conformance.errors import InputError

        if address is not None and executor is not Executor.ray:
            raise InputError("--address is that of a Ray cluster: give --executor ray too")
        self.executor, self.ray = executor, executor is Executor.ray
        self.address = address
        self.jobs = None if self.ray and jobs == "auto" else worker_count(jobs, memory)
        self._joined = contextlib.ExitStack()

    def join(self) -> None:
        """Join the cluster, before there is a trace of the run. Raises ``InputError``."""
        if self.ray:
            from torchstone.conformance.runner.ray.cluster import connect

            self._joined.enter_context(connect(self.address))

    @contextlib.contextmanager
    def pools(self, store: Store, run: str) -> Iterator[Callable[..., Workers]]:
        """What makes workers; at the end the cluster is left. The store is told the versions of each node."""
        from torchstone.conformance.runner.pool import Pool

        with self._joined:
            if not self.ray:
                yield Pool
                return
            from torchstone.conformance.runner.ray.cluster import Cluster

            def note(node: str, versions: dict[str, str]) -> None:
                text = ", ".join(f"{name} {value}" for name, value in versions.items() if name != "host")
                store.note_versions(run, {f"node {node}": text})

            yield functools.partial(Cluster, on_node=note)


PythonOption = Annotated[
    list[str] | None,
    typer.Option(
        "--python",
        metavar="NAME=PATH",
        help="Run this backend in another Python, that of its own virtual environment: the executable, or the "
        "environment's folder. It needs torch, numpy, safetensors and scipy there, not torchstone; repeatable.",
    ),
]


def parse_pythons(given: Sequence[str], backends: Sequence[str], executor: str = "local") -> dict[str, str]:
    """Return the interpreter of each backend that has one of its own. Raises InputError."""
    from torchstone.cli.options import check_known
    from torchstone.conformance.errors import InputError

    if executor != "local":
        raise InputError("--python is for workers on this machine: those of a cluster run in the nodes' environments")
    found: dict[str, str] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not (name and equals and place):
            raise InputError(f'--python takes NAME=PATH, a backend and its Python, got "{text}"')
        check_known("backend", [name], backends, more="; --python is for a backend of this run")
        if name in found:
            raise InputError(f'--python gives "{name}" two interpreters')
        from torchstone.conformance.runner.interpreter import Interpreter

        found[name] = Interpreter.at(place).path
    return found


def check_consent(stored: Mapping[str, Any], backends: Sequence[str], pythons: Mapping[str, str], what: str) -> None:
    """Raise InputError for what only a store names and this machine would run: it may be somebody else's.

    ``stored`` are the options of a run, ``backends`` and ``pythons`` what the user gave now. Torchstone's own backends
    and those of installed packages need no word.
    """
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.escape import shell_command

    missing = [("--backend", name) for name in stored.get("backends") or () if ":" in name and name not in backends]
    for name, path in (stored.get("pythons") or {}).items():
        if name in stored.get("backends", [name]) and pythons.get(name) != path:
            missing.append(("--python", f"{name}={path}"))
    if missing:
        words = shell_command(word for pair in missing for word in pair)
        raise InputError(f"{what}: a store runs no code of its own choice; if this is what you want, add {words}")


def check_usable(backends: Sequence[str], pythons: Mapping[str, str]) -> dict[str, str]:
    """Raise InputError for a backend that cannot be run, the cheap checks first; return the versions to record.

    Nobody's code but torchstone's is imported here. A backend that ends the process it is loaded in is not refused: its
    cases will have that for their verdict. Where a backend's version of a package, PyTorch's among them, is another
    than that of the backends before it, it goes under ``package (backend)``.
    """
    from torchstone.conformance.errors import InputError

    check_backend_names([name for name in backends if name not in pythons])
    from torchstone.conformance.runner.interpreter import Interpreter
    from torchstone.conformance.runner.preflight import preflight

    versions = environment_versions()
    for name in backends:
        found = Interpreter.at(pythons[name]).probe(name) if name in pythons else preflight(name)
        if "died" in found:
            warn(f'warning: backend "{name}": {found["died"]}, as it was loaded')
            continue
        if not found["ok"]:
            how = f"; install it with: {found['install']}" if found["install"] else ""
            where = f"in {pythons[name]}" if name in pythons else "here"
            raise InputError(f'backend "{name}" cannot be used {where}: {found["reason"]}{how}')
        versions |= _other(versions, found["versions"], name)
    return versions


def check_backend_names(names: Iterable[str]) -> None:
    """Raise InputError for a backend that is not registered, or whose package is not there. Imports none of them."""
    from torchstone.conformance.backends import check_backend_name

    for name in names:
        check_backend_name(name)


def _other(known: Mapping[str, str], found: Mapping[str, Any], backend: str) -> dict[str, str]:
    return {
        package if known.get(package, version) == version else f"{package} ({backend})": str(version)
        for package, version in found.items()
    }


def environment_versions() -> dict[str, str]:
    """The versions of this environment that every run records."""
    import platform
    from importlib.metadata import version

    return {name: version(name) for name in ("torchstone", "torch")} | {"python": platform.python_version()}


def pool_with_pythons(pool: Callable[..., Any], pythons: Mapping[str, str]) -> Callable[..., Any]:
    """What makes workers, those of some backends in their own interpreters."""

    def make(backend: str, **options: Any) -> Any:
        return pool(backend, **({"python": pythons[backend]} if backend in pythons else {}), **options)

    return make


def worker_count(text: str, memory: float = 8.0) -> int:
    from torchstone.conformance.errors import InputError

    if text == "auto":
        from torchstone.conformance.runner.resources import fitting_jobs

        return fitting_jobs(int(memory * 2**30))
    if not text.isdigit() or int(text) < 1:
        raise InputError(f'--jobs takes a number from 1 or auto, got "{text}"')
    return int(text)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let a polite kill end the run as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
