"""Questions about a case that run eager, asked in a process beside this one: some of eager's kernels end the process.

Integer average pooling divides by a ``divisor_override`` of 0, for one, and some gradients of nothing read where no
memory is. The process is forked once and asked again and again; one that ends is followed by another.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from torchstone.conformance.custom import registration
from torchstone.conformance.fork import allow_processor_time, fork
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.frames import encode_frame, receive_frame
from torchstone.conformance.variants.attempts import attempts

SECONDS = 20
"""Of the processor's time that one question may take, unless who asks says another."""

Question = Callable[[Case, str], Any]
"""A function of a module, of a case and a word; it returns a case, or what JSON has."""


def ask_apart(question: Question, case: Case, word: str = "", seconds: int = SECONDS) -> Any:
    """What a question is answered; None where it raises, ends the process, or takes more of the processor's time."""
    if attempts.expendable:
        return _answer(question, case, word)
    return _HELPER.ask(question, case, word, seconds)


class _Helper:
    """A fork of this process, as long as it lives, and as long as it knows the ops that this process knows."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._child = 0
        self._of: tuple[object, ...] = ()

    def ask(self, question: Question, case: Case, word: str, seconds: int) -> Any:
        of = (os.getpid(), *registration.ops(), *registration.modules())
        if self._of != of:
            self.end()
            self._begin()
            self._of = of
        assert self._channel is not None
        asked = {"module": question.__module__, "name": question.__name__, "word": word, "seconds": seconds}
        try:
            self._channel.sendall(encode_frame(asked, case.to_bytes()))
            told = receive_frame(self._channel)
        except OSError:
            told = None
        if told is None:
            self.end()
            return None
        header, data = told
        return Case.from_bytes(data) if data else header["answer"]

    def _begin(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._child, reading = fork(lambda writing: _serve(theirs))
        os.close(reading)

    def end(self) -> None:
        """End the fork, if it is one of this process."""
        if self._channel is not None:
            self._channel.close()
            if self._of[:1] == (os.getpid(),):
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(self._child, signal.SIGKILL)
                    os.waitpid(self._child, 0)
        self._channel, self._of = None, ()


_HELPER = _Helper()
atexit.register(_HELPER.end)


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
        header, data = asked
        allow_processor_time(header["seconds"])
        question = getattr(importlib.import_module(header["module"]), header["name"])
        answer = _answer(question, Case.from_bytes(data), header["word"])
        if isinstance(answer, Case):
            channel.sendall(encode_frame({}, answer.to_bytes()))
        else:
            channel.sendall(encode_frame({"answer": answer}))


def _answer(question: Question, case: Case, word: str) -> Any:
    try:
        return question(case, word)
    except Exception:
        return None
