"""A trial in a fork of this process: a crash, a hang or what a mutant leaves in a cache stays there.

The fork has everything imported and warm, so that a mutant costs its cases and no more. It answers case by case; when
it dies, what it was working on is to blame.

    fork -> parent   {"making": true, ...}                before it makes a case
                     {"begin": ID, ...}                   before it tries it
                     {"verdict": {...}, ...} + the case   of one that may have found the mutant
                     {"done": true, ...}, {"failed": WHY} at the end
    parent -> fork   {"go": true}                         after a verdict, if the trial is not over

Each frame of the fork says how many cases it has tried, and how many of them came to the mutated code. A verdict and
the end say what the fork has ``imported``, which the parent imports as well.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.run_case import compile_cases, make_verdict, run_case
from torchstone.conformance.execution.undefined_behavior import UndefinedBehavior
from torchstone.conformance.execution.verdict import REFUSED, Outcome, Stage, Verdict
from torchstone.conformance.fork import allow_processor_time
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.frames import encode_frame, receive_frame
from torchstone.conformance.runner.progress_mark import describe_exit
from torchstone.conformance.runner.worker import PR_SET_PDEATHSIG, prctl
from torchstone.conformance.variants.attempts import attempts
from torchstone.conformance.variants.registry import is_run_as_it_is

WALL_FACTOR = 10
"""Wall time that a case may take, in times of its processor time: a program can wait for what never comes."""

GRACE = 1.0
"""Seconds that a fork which says no more has to end: it closes its channel first."""

FORKS = 3
"""Forks of a trial: those after the first go on behind the case that the one before died of."""

MESSAGE = 200
"""Characters of a message that are handed on."""

MEMORY = 8 << 30
"""Bytes of address space that a fork may take beyond those of this process."""


Mutated: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[Any]]
"""Has a mutant in the compiler for as long as the context lasts; calls what it is given where it takes effect."""


class ForkedTrial:
    """Cases tried one after the other in a fork, in which ``mutated`` holds.

    An iterable of those that may have found the mutant, and the verdicts on them.

    ``cases`` makes the cases, the same in every call, and ``is_open`` says of a verdict whether it is yielded. The
    case that the fork dies of, or that takes more than ``timeout`` seconds of the processor's time, is yielded, and
    another fork goes on behind it: without a mutant the case may have no end either. A fork asks eager itself what
    cases there are; where it dies of that, the next one asks in forks of its own, which is slow. A case that does not
    come to the mutated code when it is compiled and called is not judged, unless ``every`` is. To take no more of them
    is to end the trial; it ends as well where the first ``patience`` cases, if that is not 0, have not come to mutated
    code. ``tried`` counts the cases so far, and ``reached`` those that came to the mutated code. Raises HarnessError
    when the fork ends before its first case.
    """

    def __init__(
        self, backend: Any, mutated: Mutated, cases: Callable[[], Iterable[Case]], is_open: Callable[[Verdict], bool],
        timeout: float = 20.0, patience: int = 0, every: bool = False,
    ) -> None:  # fmt: skip
        self.backend, self.mutated, self.cases = backend, mutated, cases
        self.is_open, self.timeout, self.patience = is_open, timeout, patience
        self.every = every
        self.tried = self.reached = self._times = 0
        self._begun = self._behind = ""
        self._making = self._died = self._careful = False

    def __iter__(self) -> Iterator[tuple[Case, Verdict]]:
        for _ in range(FORKS):
            self._died = False
            yield from self._one_fork()
            if not self._died:
                return
            self._behind = self._begun

    def _one_fork(self) -> Iterator[tuple[Case, Verdict]]:
        here, there = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from Python 3.12 on, of threads, which are libraries' own and idle
            pid = os.fork()
        if not pid:
            here.close()
            self._serve(there)
        there.close()
        here.settimeout(self.timeout * WALL_FACTOR)  # of a frame that has begun
        try:
            yield from self._listen(here, pid)
        finally:
            here.close()
            _end(pid)

    def _listen(self, channel: socket.socket, pid: int) -> Iterator[tuple[Case, Verdict]]:
        while True:
            ready = _readable(channel, pid, self.timeout * WALL_FACTOR)
            try:
                frame = receive_frame(channel) if ready else None
            except (ConnectionError, TimeoutError):
                frame = None
            if frame is None:
                self._died = True
                if self._making and not self._careful:
                    self._careful = True
                else:
                    yield self._dead(pid)
                return
            header, body = frame
            if "failed" in header:
                raise HarnessError(f"a trial could not begin: {header['failed']}")
            self.tried, self.reached = header["tried"], header["reached"]
            for name in header.get("imported", ()):  # so that the next fork need not
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
            if "done" in header:
                return
            self._making = "making" in header
            if self._making:
                continue
            if "begin" in header:
                self._begun = header["begin"]
                continue
            fields = header["verdict"]
            known = {"stage": Stage(fields["stage"]), "outcome": Outcome(fields["outcome"])}
            yield Case.from_bytes(body), Verdict(**{**fields, **known})
            with contextlib.suppress(ConnectionError):
                channel.sendall(encode_frame({"go": True}))

    def _dead(self, pid: int) -> tuple[Case, Verdict]:
        """The case that a fork died of, or that it does not come to the end of, and the verdict on it."""
        code, hangs = -signal.SIGKILL, True
        if (ended := _ended(pid, GRACE)) is not None:
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            hangs = False
        if not self._begun:
            raise HarnessError(f"a trial ended before its first case: {describe_exit(code)}")
        case = next(case for case in self.cases() if case.id == self._begun)
        hangs = hangs or code == -signal.SIGXCPU
        message = f"no result after {self.timeout:g} s" if hangs else describe_exit(code)
        finding = Finding(Outcome.TIMEOUT if hangs else Outcome.CRASH, message=message)
        self.tried += 1
        return case, make_verdict(case, self.backend.name, Stage.COMPILE, finding, 0.0)

    def _serve(self, channel: socket.socket) -> None:
        """Be the fork. Never returns."""
        before = set(sys.modules)
        try:
            _confine()
            attempts.expendable = not self._careful
            with self.mutated(self._reach):
                for case in self._left(lambda: self._send(channel, making=True)):
                    self._send(channel, begin=case.id)
                    allow_processor_time(self.timeout)
                    self._times = 0
                    verdict = self._verdict(case)
                    self.tried += 1
                    self.reached += bool(self._times)
                    if not self.reached and self.tried == self.patience:
                        break
                    if verdict is not None and self.is_open(verdict):
                        fields = vars(replace(verdict, evidence={}, message=verdict.message[:MESSAGE]))
                        self._send(channel, case.to_bytes(), verdict=fields, imported=sorted(set(sys.modules) - before))
                        if receive_frame(channel) is None:
                            break
            self._send(channel, done=True, imported=sorted(set(sys.modules) - before))
        except ConnectionError:
            pass  # nobody asks for more
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._send(channel, failed=f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)

    def _verdict(self, case: Case) -> Verdict | None:
        """The verdict on a case; None where compiling and calling it does not come to the mutated code.

        Then the backend did what it does without the mutation, and nobody needs to judge it. A case whose variant
        compiles in a way of its own is run as it is.
        """
        alike = is_run_as_it_is(case) and REFUSED not in case.tags and hasattr(self.backend, "compile_many")
        if self.every or not alike:
            return run_case(case, self.backend)
        try:
            (compiled,) = compile_cases([case], self.backend)
        except Exception:  # no program's error, which is returned: the run of the case tells what it is
            return run_case(case, self.backend)
        if not self._times and not isinstance(compiled, UndefinedBehavior):
            with warnings.catch_warnings(), torch.no_grad(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                compiled(*case.fresh_args())  # type: ignore[operator]  # an exception is none, and is suppressed
        return run_case(case, self.backend, compiled) if self._times else None

    def _left(self, make: Callable[[], None]) -> Iterator[Case]:
        """The cases behind the one that the last fork began, or made the next one of; ``make`` is told of each."""
        left = iter(self.cases())
        passed = not self._behind
        while True:
            make()
            allow_processor_time(self.timeout)
            if (case := next(left, None)) is None:
                return
            if passed:
                yield case
            passed = passed or case.id == self._behind

    def _reach(self) -> None:
        self._times += 1

    def _send(self, channel: socket.socket, body: bytes = b"", **header: Any) -> None:
        channel.sendall(encode_frame({**header, "tried": self.tried, "reached": self.reached}, body))


def _readable(channel: socket.socket, pid: int, seconds: float) -> bool:
    """Wait for a frame of a fork. False where none comes in this time, or where the fork has ended without one.

    Its end is waited for as well: what the fork itself has started holds the channel open after it.
    """
    try:
        process = os.pidfd_open(pid)
    except OSError:  # a kernel that has none
        return bool(select.select([channel], [], [], seconds)[0])
    try:
        ready, _, _ = select.select([channel, process], [], [], seconds)
        return channel in ready or bool(select.select([channel], [], [], 0)[0])  # it may have answered and ended
    finally:
        os.close(process)


def _ended(pid: int, seconds: float) -> Any:
    """How a fork ended, which stays to be waited for; None if it has not in this time: an end may follow a silence."""
    until = time.monotonic() + seconds
    while (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        if time.monotonic() > until:
            return None
        time.sleep(0.01)
    return ended


def _end(pid: int) -> None:
    """End a fork and what it has started, which are of its group."""
    for end in (os.killpg, os.kill):  # it may not have come to have a group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _confine() -> None:
    """Die with the parent, write nothing where the user is, and take no more memory than there is room for."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.chdir(tempfile.gettempdir())
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with open("/proc/self/statm", "rb") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
