"""Where a worker was when it died: one shared byte, written at a cost of nanoseconds. And how it died, in words."""

from __future__ import annotations

import mmap
import os
import signal
import tempfile

from torchstone.conformance.verdict import Stage

OUTSIDE = 0  # the backend has not been called for this case: eager, the oracle or the harness is at work
COMPILE, RUN, COMPARE = 1, 2, 3
STAGES = (None, Stage.COMPILE, Stage.RUN, Stage.COMPARE)
BATCH = 4  # many cases are being compiled together: whose fault it is cannot be told
LOADING = 5  # the worker is as it should be, and the backend is being imported, asked whether it can run, warmed up


def create() -> int:
    """Return the descriptor of a fresh byte, to be passed to a worker."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        return os.dup(file.fileno())


def read(descriptor: int) -> Stage | None:
    """Return the stage that the worker was in; None before the backend was first called."""
    (value,) = os.pread(descriptor, 1, 0)
    return STAGES[value] if value < len(STAGES) else None


def in_batch(descriptor: int) -> bool:
    """Say whether the worker was compiling many cases together."""
    return os.pread(descriptor, 1, 0) == bytes([BATCH])


def loading(descriptor: int) -> bool:
    """Say whether the worker was loading its backend."""
    return os.pread(descriptor, 1, 0) == bytes([LOADING])


class Mark:
    """The byte as the worker holds it. Its descriptor may be closed, or worse: the memory stays."""

    def __init__(self, descriptor: int) -> None:
        self._byte = mmap.mmap(descriptor, mmap.PAGESIZE)

    def set(self, value: int) -> None:
        """Say where the worker is."""
        self._byte[0] = value


def describe_exit(code: int) -> str:
    """Say how a process ended: ``killed by SIGSEGV`` or ``exited with code 3``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
