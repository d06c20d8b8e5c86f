"""The worker: a process that tries one case at a time on one backend, and answers each with a verdict.

Where a backend compiles many programs at once, the cases that have arrived are compiled together first.

Started as ``python -m torchstone.conformance.runner.worker FD MARK PARENT``. Frames travel over the socket ``FD`` and
nowhere else: stdout and stderr both end in the runner's tail buffer, so a backend may print what it likes. ``MARK`` is
the byte that says where in a case the worker is. The worker does nothing to survive a bad case; dying is how a case is
reported as a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.runner.marks import Marked
from torchstone.conformance.runner.protocol import VERSION, encode, receive

if TYPE_CHECKING:
    from torchstone.conformance.backends.base import Backend

PR_SET_PDEATHSIG = 1
CASE_ENDS = b"\0\x1e\0\n"  # printed after each case, so that a dead worker's last words are those of its last case
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Serve the runner until its end of the socket closes."""
    descriptor, mark, parent = map(int, sys.argv[1:])
    _settle(parent)
    os.set_inheritable(descriptor, False)
    os.set_inheritable(mark, False)
    channel = socket.socket(fileno=descriptor)
    hello = receive(channel)
    if hello is None:
        return
    from torchstone.conformance.backends.eager import Eager  # no torch in it

    try:
        backend = Marked(_start(hello[0]), mark)
    except BaseException as error:
        channel.sendall(encode({"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}))
        return
    _end_of_output()
    channel.sendall(encode({"ready": True, "batch": backend.batch, "rss": resident()}))
    while frames := _arrived(channel, backend.batch):
        compiled, seconds = _compile(backend, frames)
        for index, frame in enumerate(frames):
            backend.begin()
            verdict = _try(Eager() if frame[0].get("eager") else backend, *frame, compiled.pop(index, None))
            verdict["seconds"] += seconds
            _end_of_output()
            channel.sendall(encode({"verdict": verdict, "rss": resident()}))


def _arrived(channel: socket.socket, most: int) -> list[tuple[dict[str, Any], bytes]]:
    """Wait for a frame, and return it with those that have come in behind it; nothing at the end of the stream."""
    frames: list[tuple[dict[str, Any], bytes]] = []
    while len(frames) < most and (not frames or select.select([channel], [], [], 0)[0]):
        frame = receive(channel)
        if frame is None:
            return []
        frames.append(frame)
    return frames


def _compile(backend: Marked, frames: list[tuple[dict[str, Any], bytes]]) -> tuple[dict[int, Any], float]:
    """Compile together what may be: return what came of it, by frame, and the seconds it took for each frame."""
    together = [index for index, (header, _) in enumerate(frames) if not header.get("alone")]
    if backend.batch == 1 or len(together) < 2:
        return {}, 0.0
    from torchstone.conformance.case import Case
    from torchstone.conformance.dynamic import BATCH, DYNAMIC
    from torchstone.conformance.trial import compile_cases

    started = time.perf_counter()
    try:
        cases = [Case.from_bytes(frames[index][1]) for index in together]
        if any(case.variant in (DYNAMIC, BATCH) for case in cases):
            return {}, 0.0
        compiled = dict(zip(together, compile_cases(cases, backend), strict=True))
    except Exception:  # whose fault it is will be told when each is compiled by itself
        compiled = {}
    return compiled, (time.perf_counter() - started) / len(frames)


def _end_of_output() -> None:
    with contextlib.suppress(OSError):
        os.write(2, CASE_ENDS)


def resident(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes, 0 where /proc is missing."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _settle(parent: int) -> None:
    """Die with the parent, leave no core files, say where a signal struck, and be the kernel's first choice to kill."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl could take effect
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def _start(hello: dict[str, Any]) -> Backend:
    if hello["hello"] != VERSION:
        raise RuntimeError(f"runner speaks protocol {hello['hello']}, worker {VERSION}")
    import torch

    from torchstone.conformance import trial  # noqa: F401  (its imports are paid for now, not by the first case)
    from torchstone.conformance.backends.base import load

    torch.set_num_threads(1)
    backend = load(hello["backend"])
    availability = backend.available()
    if not availability.ok:
        raise RuntimeError(f"backend {backend.name} is not available: {availability.reason}")
    warm_up = getattr(backend, "warm_up", None)
    if warm_up is not None:
        warm_up()
    gc.collect()
    gc.freeze()
    return backend


def _try(backend: Backend, header: dict[str, Any], body: bytes, compiled: Any) -> dict[str, Any]:
    """Return the verdict of one case as JSON; what escapes the trial is the harness's own error, not the backend's."""
    from torchstone.conformance.case import Case
    from torchstone.conformance.trial import try_case
    from torchstone.conformance.verdict import Outcome, Stage, Verdict

    started = time.perf_counter()
    try:
        case = Case.from_bytes(body)
        return dataclasses.asdict(try_case(case, backend, compiled))
    except MemoryError as error:
        outcome, message, trace = Outcome.OOM, f"MemoryError: {error}", ""
    except Exception as error:
        outcome, message = Outcome.HARNESS_ERROR, f"{type(error).__name__}: {error}"
        trace = traceback.format_exc()
    verdict = Verdict(
        **header["about"], backend=backend.name, stage=Stage.RUN, outcome=outcome, message=message,
        evidence={"traceback": trace} if trace else {}, seconds=time.perf_counter() - started,
    )  # fmt: skip
    return dataclasses.asdict(verdict)


if __name__ == "__main__":
    main()
