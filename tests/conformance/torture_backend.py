"""A backend that does to its worker what real ones do; the first element of the first input says what.

Loaded in workers as ``torture_backend:Torture`` with this folder as the current one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch

from torchstone.conformance.backends import Availability, BackendError, BackendUnsupported

DEEDS = (
    "obey", "segfault", "abort", "os_exit", "sys_exit", "hang", "hang_in_c", "print", "raise", "wrong_dtype",
    "hog", "crash_once", "close_channel", "write_everywhere", "unsupported", "fail", "kill_by_hand", "sleep",
    "cannot_allocate",
)  # fmt: skip


class Torture:
    name = "torture"

    def available(self):
        return Availability(True)

    def versions(self):
        return {}

    def compile(self, fn, args):
        def run(*tensors):
            deed = DEEDS[int(tensors[0].reshape(-1)[0].item())]
            result = getattr(self, deed)()
            return fn(*tensors) if result is None else result

        return run

    def obey(self):
        pass

    def segfault(self):
        ctypes.string_at(0)

    def abort(self):
        sys.stderr.write("LLVM ERROR: the last words\n")
        os.abort()

    def os_exit(self):
        os._exit(7)

    def sys_exit(self):
        sys.exit(3)

    def hang(self):
        while True:
            time.sleep(0.01)

    def hang_in_c(self):
        ctypes.PyDLL(None).sleep(600)  # PyDLL: the GIL stays held

    def print(self):
        for _ in range(40):
            os.write(1, b"x" * 65536)
            print("y" * 10000)

    def wrong_dtype(self):
        return torch.zeros(4, dtype=torch.float64)

    def hog(self):
        self.kept = []
        for _ in range(100):  # 3 GiB, then wait to be killed
            self.kept.append(b"x" * (1 << 25))
            time.sleep(0.01)
        time.sleep(600)

    def cannot_allocate(self):
        raise MemoryError

    def crash_once(self):
        mark = Path(os.environ["TORTURE_MARK"])
        if not mark.exists():
            mark.touch()
            os.abort()

    def close_channel(self):
        os.closerange(3, 256)

    def write_everywhere(self):
        for fd in range(3, 64):
            try:
                os.write(fd, b"\xff" * 100)
            except OSError:
                continue

    def unsupported(self):
        raise BackendUnsupported("no such kernel", "lower", op="aten.add")

    def fail(self):
        raise BackendError("pass pipeline failed", "compile")

    def kill_by_hand(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self):
        time.sleep(0.5)


setattr(Torture, "raise", lambda self: 1 // 0)


class Together(Torture):
    """Compiles up to eight programs at once; the deeds are done while it compiles."""

    name = "together"
    batch = 8

    def compile(self, fn, args, count=1):
        def run(*tensors):
            return fn(*tensors)

        run.evidence = {"together": count}
        getattr(self, DEEDS[int(args[0].reshape(-1)[0].item())])()
        return run

    def compile_many(self, programs):
        programs, found = list(programs), []
        for fn, args in programs:
            try:
                found.append(self.compile(fn, args, len(programs)))
            except Exception as error:
                found.append(error)
        return found


class EagerDies(Torture):
    """Breaks eager in its worker, as a bad kernel in PyTorch would."""

    name = "eager-dies"

    def warm_up(self):
        from torchstone.conformance.program import Program

        Program.__call__ = lambda self, *tensors: os.abort()

    def compile(self, fn, args):
        return lambda *tensors: tensors[0] + tensors[0]


class EagerDiesOften(Torture):
    """Breaks the second run of eager in its worker, when the backend has been called: as corrupted memory would."""

    name = "eager-dies-often"

    def warm_up(self):
        from torchstone.conformance.program import Program

        runs = iter(range(9))
        Program.__call__ = lambda self, *tensors: os.abort() if next(runs) else tensors[0] + tensors[0]

    def compile(self, fn, args):
        return fn


class DiesAtStart(Torture):
    name = "dies-at-start"

    def available(self):
        os.abort()


class Refuses(Torture):
    name = "refuses"

    def available(self):
        return Availability(False, "its library is missing", "pip install it")


not_a_backend = 7
