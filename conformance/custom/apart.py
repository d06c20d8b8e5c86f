"""Work that runs an op in eager, done in a fork of this process: an op under development may end the process it is in.

What the fork makes comes back through a pipe as it is made, so that workers try it meanwhile. Before each step the fork
says what it is at. If it dies there, or hangs, this is told, and another fork goes on without that step.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.fork import fork
from torchstone.conformance.runner.frames import FrameDecoder, Header, encode_frame
from torchstone.conformance.runner.progress_mark import describe_exit

SECONDS = 60.0
"""How long a step may take."""
MOST_DEATHS = 12
"""Forks that may die before the rest is given up."""
MOST_OF_A_KIND = 2
"""Steps of a kind that may end a fork before the others of that kind are left out."""
CHUNK = 1 << 18


@dataclass(frozen=True)
class Died:
    """A step that ended the fork: what it was at, and how it ended."""

    step: str
    how: str


@dataclass(frozen=True)
class Made:
    """Something that came of a step: a key that it alone has, JSON values, and bytes."""

    key: str
    told: Any = None
    data: bytes = b""


class Steps:
    """What a fork says of itself, and which steps it has to leave out."""

    def __init__(self, died: Counter[str], say: Callable[[str, str], None]) -> None:
        self._died, self._say = died, say

    def begin(self, step: str, kind: str = "") -> bool:
        """Say that a step begins; False for one that ended a fork before, or of a kind of which some did."""
        if self._died[step] or (kind and self._died[kind] >= MOST_OF_A_KIND):
            return False
        self._say(step, kind)
        return True


Make = Callable[[Steps], Iterator[Made]]


def stream(make: Make, seconds: float = SECONDS) -> Generator[Made | Died]:
    """What ``make`` yields in a fork, each within so many seconds.

    Raises ``InputError`` where ``make`` raises it, ``HarnessError`` where it raises anything else.

    ``make`` has to yield the same each time, for it begins anew after a step that ended the fork. Closing the generator
    ends the fork.
    """
    died: Counter[str] = Counter()
    seen: set[str] = set()
    for _ in range(MOST_DEATHS):
        at = kind = ""
        for header, body in _fork(make, died, seconds):
            if "at" in header:
                at, kind = header["at"], header["kind"]
            elif "raised" in header:
                raise (InputError if header["input"] else HarnessError)(header["raised"])
            elif "end" in header:
                return
            elif "died" in header:
                yield Died(at, header["died"])
            elif header["key"] not in seen:
                seen.add(header["key"])
                yield Made(header["key"], header["told"], body)
        if died[at]:
            return
        died.update({at, kind})


def _fork(make: Make, died: Counter[str], seconds: float) -> Iterator[tuple[Header, bytes]]:
    child, reading = fork(partial(_be_fork, make, died))
    decoder = FrameDecoder()
    try:
        while chunk := _read(reading, seconds):
            for frame in decoder.feed(chunk):
                yield frame
                if "end" in frame[0]:
                    return
        yield {"died": _how(child, seconds)}, b""
    finally:
        os.close(reading)
        _reap(child)


def _read(descriptor: int, seconds: float) -> bytes:
    """What has come; nothing at the end of the pipe, and where nothing comes for too long."""
    if not select.select([descriptor], [], [], seconds)[0]:
        return b""
    return os.read(descriptor, CHUNK)


def _how(child: int, seconds: float) -> str:
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return describe_exit(os.waitstatus_to_exitcode(status))
        time.sleep(0.01)
    return f"at it for more than {seconds:g} s"


def _reap(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _be_fork(make: Make, died: Counter[str], writing: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()
    torch.set_num_threads(1)  # the threads of the process are not in its fork, which would wait for them for ever
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def send(header: Header, body: bytes = b"") -> None:
        data = encode_frame(header, body)
        while data:
            data = data[os.write(writing, data) :]

    with contextlib.suppress(BrokenPipeError):  # whoever asked has gone
        try:
            for made in make(Steps(died, lambda step, kind: send({"at": step, "kind": kind}))):
                send({"key": made.key, "told": made.told}, made.data)
        except Exception as error:
            send({"raised": f"{type(error).__name__}: {error}", "input": isinstance(error, InputError)})
        send({"end": True})
