"""Where a worker was when it died, in a few shared bytes that cost nanoseconds to write; and how it died, in words."""

from __future__ import annotations

import json
import mmap
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchstone.conformance.execution.verdict import Stage

NOT_CALLED = 0  # the backend has not been called for this case: eager, the oracle or the harness is at work
COMPILE, RUN, COMPARE = 1, 2, 3
STAGES = (None, Stage.COMPILE, Stage.RUN, Stage.COMPARE)
BATCH = 4  # many cases are being compiled together: whose fault it is cannot be told
LOADING = 5  # the worker is as it should be, and the backend is being imported, asked whether it can run, warmed up
COUNT = slice(8, 16)  # where the number of cases stands that the worker has begun
LENGTH = slice(16, 20)  # where the length stands of the text that begins at ``TEXT``: which call is being made
TEXT = 20


def create_mark() -> int:
    """Return the descriptor of fresh bytes, to be passed to a worker."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        return os.dup(file.fileno())


@dataclass(frozen=True)
class Progress:
    """What a worker told, at one moment, of where it was."""

    page: bytes

    @property
    def stage(self) -> Stage | None:
        """The stage that the worker was in; None before the backend was first called."""
        return STAGES[self.page[0]] if self.page[0] < len(STAGES) else None

    @property
    def in_batch(self) -> bool:
        """Whether it was compiling many cases together."""
        return self.page[0] == BATCH

    @property
    def loading(self) -> bool:
        """Whether it was loading its backend."""
        return self.page[0] == LOADING

    @property
    def cases_begun(self) -> int:
        """How many cases it had begun."""
        return int.from_bytes(self.page[COUNT], "little")

    @property
    def call(self) -> dict[str, Any]:
        """What it told of the call that it was making: nothing where it told nothing that can be read."""
        length = int.from_bytes(self.page[LENGTH], "little")
        try:
            facts = json.loads(self.page[TEXT : TEXT + length])
        except (ValueError, RecursionError):
            return {}
        return facts if isinstance(facts, dict) else {}


def read_progress(descriptor: int) -> Progress:
    """Return where a worker is, by the bytes that it was given."""
    return Progress(os.pread(descriptor, mmap.PAGESIZE, 0))


class ProgressMark:
    """The bytes as the worker holds them. Its descriptor may be closed, or worse: the memory stays."""

    def __init__(self, descriptor: int) -> None:
        self._bytes = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._begun = 0

    def set(self, value: int) -> None:
        """Say where the worker is."""
        self._bytes[0] = value

    def begin(self) -> None:
        """Say that another case begins."""
        self.set(NOT_CALLED)
        self._begun += 1
        self._bytes[COUNT] = self._begun.to_bytes(8, "little")
        self.tell_call({})

    def tell_call(self, facts: Mapping[str, Any]) -> None:
        """Tell of the call that is being made; what has no room is left out."""
        text = json.dumps(dict(facts)).encode()
        self._bytes[LENGTH] = bytes(4)  # never a length and the text of another call
        if len(text) <= mmap.PAGESIZE - TEXT:
            self._bytes[TEXT : TEXT + len(text)] = text
            self._bytes[LENGTH] = len(text).to_bytes(4, "little")


def describe_exit(code: int) -> str:
    """Say how a process ended: ``killed by SIGSEGV`` or ``exited with code 3``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
