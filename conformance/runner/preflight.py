"""The check before a run: whether a backend can run here, and with which versions.

Torchstone's own adapters look for packages without importing them, so they are checked in this process. Other code may
abort as it is imported, so a worker checks it. The fork server started for that stays, because the run needs it anyway.
"""

from __future__ import annotations

import atexit
import functools
import select
import time
from typing import Any

from torchstone.conformance.backends.registry import describe_backend, is_shipped, load
from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.escape import one_line
from torchstone.conformance.runner.interpreter import PROBE_SECONDS, Interpreter
from torchstone.conformance.runner.progress_mark import describe_exit
from torchstone.conformance.runner.worker_process import ForkServerClient, ForkServerDied, WorkerProcess

DISK = 8 << 30


def preflight(backend: str) -> dict[str, Any]:
    """Return ``ok``, ``reason``, ``install`` and ``versions``; or ``died``, how the worker ended as it was loaded.

    One that died is not refused: its cases are to say so. Raises InputError for one that cannot be loaded, and
    HarnessError when no worker can be had.
    """
    if is_shipped(backend):
        return describe_backend(load(backend))
    server = ForkServerClient.shared(Interpreter())
    _keep_fork_server(server.interpreter)
    try:
        worker = server.start(backend, "cache-preflight", DISK, describe_only=True)
        try:
            found = _wait(server, worker)
        finally:
            worker.stop()
    except ForkServerDied as error:
        raise HarnessError(f"no worker can start: {server.last_output()}") from error
    finally:
        server.close()
    if "failed" in found:
        kind, _, text = found["failed"].partition(": ")
        raise InputError(
            text if kind == InputError.__name__ else f'backend "{backend}" cannot be loaded: {kind}: {text}'
        )
    return found


@functools.cache
def _keep_fork_server(interpreter: Interpreter) -> None:
    """Use the fork server until this process ends."""
    atexit.register(ForkServerClient.shared(interpreter).close)


def _wait(server: ForkServerClient, worker: WorkerProcess) -> dict[str, Any]:
    """What the worker says, or how it ended."""
    end = time.monotonic() + PROBE_SECONDS
    sources: list[Any] = [server.control, worker.channel, worker.output]
    while (left := end - time.monotonic()) > 0:
        select.select(sources, [], [], left)
        server.receive()
        if not worker.read_output():
            sources = sources[:2]
        for header, _ in worker.frames():
            return header
        if not worker.channel_open or worker.code is not None:
            while worker.code is None:
                server.receive(wait=True)
            worker.read_output()
            words = one_line(worker.tail)
            return {"died": describe_exit(worker.code) + (f": {words}" if words else "")}
    return {"died": f"not ready after {PROBE_SECONDS:g} s"}
