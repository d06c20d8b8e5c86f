"""Variants of a case, made in a process beside this one: for some arguments eager's kernels end the process.

Integer average pooling divides by a ``divisor_override`` of 0, for one, and some gradients of nothing read where no
memory is. The process is forked once and asked again and again; one that ends is followed by another.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import socket
from contextlib import suppress

import torch

from torchstone.conformance.custom import registration
from torchstone.conformance.fork import allow_processor_time, fork
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.frames import encode_frame, receive_frame
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.attempts import attempts

SECONDS = 10
"""Of the processor's time that one question may take."""


def applied(case: Case, name: str) -> Case | None:
    """The case in a variant; None where there is none, or where making it ends the process or takes too long."""
    if attempts.expendable:
        made = apply(case, name)
        return made if isinstance(made, Case) else None
    return _HELPER.applied(case, name)


class _Helper:
    """A fork of this process, as long as it lives, and as long as it knows the ops that this process knows."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._child = 0
        self._of: tuple[object, ...] = ()

    def applied(self, case: Case, name: str) -> Case | None:
        of = (os.getpid(), *registration.ops(), *registration.modules())
        if self._of != of:
            self._end()
            self._begin()
            self._of = of
        assert self._channel is not None
        try:
            self._channel.sendall(encode_frame({"variant": name}, case.to_bytes()))
            answer = receive_frame(self._channel)
        except OSError:
            answer = None
        if answer is None:
            self._end()
            return None
        return Case.from_bytes(answer[1]) if answer[1] else None

    def _begin(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._child, reading = fork(lambda writing: _serve(theirs))
        os.close(reading)

    def _end(self) -> None:
        """End the fork, if it is one of this process."""
        if self._channel is not None:
            self._channel.close()
            if self._of[:1] == (os.getpid(),):
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(self._child, signal.SIGKILL)
                    os.waitpid(self._child, 0)
        self._channel, self._of = None, ()


_HELPER = _Helper()


def _serve(channel: socket.socket) -> None:
    """Answer what comes until the other side has gone. Of what the process had open nothing else is kept."""
    faulthandler.disable()
    torch.set_num_threads(1)  # the threads of the process are not in its fork, which would wait for them for ever
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != channel.fileno():
            with suppress(OSError):
                os.close(int(name))
    while (asked := receive_frame(channel)) is not None:
        allow_processor_time(SECONDS)
        channel.sendall(encode_frame({}, _made(asked[1], asked[0]["variant"])))


def _made(data: bytes, name: str) -> bytes:
    try:
        made = apply(Case.from_bytes(data), name)
        return made.to_bytes() if isinstance(made, Case) else b""
    except Exception:
        return b""
