"""What runs on a node of a Ray cluster: a local pool of one isolated worker, and a description of the node."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torchstone.compiler.runtime.cpu import level
from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.preflight import preflight

MAY_DIFFER = frozenset({"cpu", "host"})  # what is told of a node, and explains a verdict more than it decides it


@dataclass(frozen=True)
class _CaseBytes:
    """What a pool asks of a case, without reading it."""

    number: int
    id: str
    source: str
    op: str
    dtype: str
    variant: str
    data: bytes

    def to_bytes(self) -> bytes:
        return self.data


class _Stop(Exception):
    """Raised out of a pool's loop."""


class NodeActor:
    """A Ray actor of one CPU, with a pool of one worker.

    Its calls run in threads of their own, so that ``stop`` does not wait for its turn.
    """

    def __init__(self, backend: str, timeout: float, memory: int, folder: str, threads: str | None) -> None:
        with contextlib.suppress(OSError):
            os.chdir(folder)  # where a backend under development lies, if the nodes share it
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's own; a worker's environment is what it is at home
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
        self._pool = Pool(backend, jobs=1, timeout=timeout, memory=memory, tick=self._check_stopping)
        self._stopping = False
        self._turn = threading.Lock()

    def _check_stopping(self) -> None:
        if self._stopping:
            raise _Stop

    def node(self) -> str:
        """The id of the node this is on."""
        ray: Any = import_module("ray")
        return ray.get_runtime_context().get_node_id()

    def run_cases(self, batch: Sequence[tuple[int, Mapping[str, str], bytes]]) -> tuple[list[tuple[int, str]], str]:
        """Try cases; return the verdicts as JSON, and what ended the pool before it was through, if anything did."""
        cases = [
            _CaseBytes(number, about["case_id"], about["source"], about["op"], about["dtype"], about["variant"], data)
            for number, about, data in batch
        ]
        verdicts: list[tuple[int, str]] = []
        with self._turn:
            try:
                self._check_stopping()
                for result in self._pool.results(cases):  # type: ignore[arg-type]
                    verdicts.append((result.case.number, result.verdict.to_json()))  # type: ignore[attr-defined]
            except HarnessError as error:
                return verdicts, str(error)
            except _Stop:
                return verdicts, "stopped"
        return verdicts, ""

    def stop(self) -> None:
        """Leave what is being tried, and end the worker with its files."""
        self._stopping = True
        with self._turn:
            self._pool.close()


def describe_node(backend: str) -> dict[str, str]:
    """The versions of what decides a verdict here, and of the machine what explains it."""
    from importlib.metadata import version

    import torch

    found = preflight(backend)
    if not found.get("ok", True):
        how = f"; install it with: {found['install']}" if found["install"] else ""
        raise InputError(f'backend "{backend}" cannot be used there: {found["reason"]}{how}')
    facts = {name: version(name) for name in ("torchstone", "torch")}
    facts |= {"python": ".".join(map(str, sys.version_info[:2])), "machine": platform.machine()}
    facts |= {"cpu": torch.backends.cpu.get_cpu_capability(), "host": socket.gethostname()}
    facts |= {"code generator": os.environ.get(level.VARIABLE) or level.NATIVE}
    return found.get("versions", {}) | facts


def version_differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What two descriptions do not have in common, in words; empty when a verdict may come from either."""
    names = sorted((here.keys() | there.keys()) - MAY_DIFFER)
    return ", ".join(
        f"{name} {there.get(name, 'missing')} there and {here.get(name, 'missing')} here"
        for name in names
        if here.get(name) != there.get(name)
    )
