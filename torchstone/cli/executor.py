"""Where a run's workers are: on this machine, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

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


class Where:
    """The executor that the options mean. ``jobs`` is None for every CPU of a cluster. Raises ``InputError``."""

    def __init__(self, executor: Executor, address: str | None, jobs: str, memory: float = 8.0) -> None:
        from torchstone.cli.commands.run import _jobs
        from torchstone.conformance.errors import InputError

        if address is not None and executor is not Executor.ray:
            raise InputError("--address is that of a Ray cluster: give --executor ray too")
        self.ray = executor is Executor.ray
        self.address = address
        self.jobs = None if self.ray and jobs == "auto" else _jobs(jobs, memory)
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
