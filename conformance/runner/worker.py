"""The worker: a process that tries one case at a time on one backend, and answers each with a verdict.

Where a backend compiles many programs at once, the cases that have arrived are compiled together first.

Frames travel over the socket ``channel`` and nowhere else: stdout and stderr both end in the runner's tail buffer, so a
backend may print what it likes. ``mark`` is the byte that says where in a case the worker is. The worker does nothing
to survive a bad case; dying is how a case is reported as a crash. What a case leaves changed is put right after each
call into the backend, and what cannot be put right ends the worker: its last verdict is sent with the reason.
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
import tempfile
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.registry import describe_backend
from torchstone.conformance.custom import registration
from torchstone.conformance.runner import cleanup
from torchstone.conformance.runner.frames import VERSION, encode_frame, receive_frame

if TYPE_CHECKING:
    from torchstone.conformance.backends.protocol import Backend
    from torchstone.conformance.runner.sandbox import Sandbox

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
END_OF_CASE = b"\0\x1e\0\n"  # printed after each case, so that a dead worker's last words are those of its last case
PAGE = os.sysconf("SC_PAGE_SIZE")
FOLDER = "cwd"  # the current folder of a worker, in its scratch folder


def main() -> None:
    """Be a worker in a fresh process."""
    channel, mark, parent, scratch, cache, disk = sys.argv[1:]
    run_worker(int(channel), int(mark), int(parent), scratch, cache, int(disk))


def preload() -> None:
    """Import what every worker needs, and no case should pay for. Touches no device and starts no thread."""
    import torch  # noqa: F401

    from torchstone.conformance.execution import run_case  # noqa: F401
    from torchstone.conformance.runner import sandbox  # noqa: F401


def preload_decompositions() -> None:
    """Import what the oracle needs once a result is wrong: PyTorch's decompositions bring in all of Dynamo."""
    from torchstone.compiler._torch import dynamo

    dynamo.load()


def run_worker(channel: int, mark: int, parent: int, scratch: str, cache: str, disk: int) -> None:
    """Be a worker until the runner's end of the socket closes; never returns."""
    code = 1
    try:
        _confine(parent, Path(scratch), disk)
        for descriptor in (channel, mark):
            os.set_inheritable(descriptor, False)
        folders = {"TMPDIR": scratch, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        serve(socket.socket(fileno=channel), mark, folders)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(code & 0xFF)  # without the exit handlers: they are the backend's too


def serve(channel: socket.socket, mark: int, folders: dict[str, str]) -> None:
    """Answer the runner's frames."""
    hello = receive_frame(channel)
    if hello is None:
        return
    try:
        loaded = _load(hello[0], mark, folders)
        if hello[0].get("describe_only"):
            channel.sendall(encode_frame(describe_backend(loaded)))
            return
        backend = _start(loaded, mark, watch=hello[0].get("watch"))
    except BaseException as error:
        channel.sendall(
            encode_frame({"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        )
        return
    from torchstone.conformance.backends.adapters.eager import Eager

    _end_of_output()
    channel.sendall(encode_frame({"ready": True, "batch": backend.batch, "rss": resident()}))
    while frames := _receive_batch(channel, backend.batch):
        compiled, seconds = _compile(backend, frames)
        for index, frame in enumerate(frames):
            own = compiled.pop(index, None)
            backend.begin(own)
            backend.traces = _is_traced(frame[0])
            subject = Eager() if frame[0].get("eager") else backend
            verdict = _run_case(subject, *frame, own, release=hello[0]["torch"])
            verdict["seconds"] += seconds
            _end_of_output()
            answer = {"case": frame[0]["case"], "verdict": verdict, "rss": resident(), "ran": backend.ran.to_json()}
            if spent := backend.spent():
                answer["spent"] = spent
            channel.sendall(encode_frame(answer))


def _receive_batch(channel: socket.socket, most: int) -> list[tuple[dict[str, Any], bytes]]:
    """Wait for a frame, and return it with those that have come in behind it; nothing at the end of the stream."""
    frames: list[tuple[dict[str, Any], bytes]] = []
    while len(frames) < most and (not frames or select.select([channel], [], [], 0)[0]):
        frame = receive_frame(channel)
        if frame is None:
            return []
        frames.append(frame)
    return frames


def _is_traced(header: dict[str, Any]) -> bool:
    return not header.get("untraced")


def _compile(backend: Sandbox, frames: list[tuple[dict[str, Any], bytes]]) -> tuple[dict[int, Any], float]:
    """Compile together what may be, and is traced or not as the first is.

    Return what came of it, by frame, and the seconds it took for each frame.
    """
    backend.traces = _is_traced(frames[0][0])
    headers = [header for header, _ in frames]
    together = [
        at for at, header in enumerate(headers) if not header.get("alone") and _is_traced(header) is backend.traces
    ]
    if backend.batch == 1 or len(together) < 2:
        return {}, 0.0
    from torchstone.conformance.execution.run_case import compile_cases
    from torchstone.conformance.program.case import Case
    from torchstone.conformance.variants.registry import compiled_alone

    started = time.perf_counter()
    try:
        cases = [Case.from_bytes(frames[index][1]) for index in together]
        if any(map(compiled_alone, cases)):
            return {}, 0.0
        compiled = dict(zip(together, compile_cases(cases, backend), strict=True))
    except Exception:  # whose fault it is will be told when each is compiled by itself
        compiled = {}
    return compiled, (time.perf_counter() - started) / len(frames)


def _end_of_output() -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, END_OF_CASE)


def resident(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes, 0 where /proc is missing."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system has it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _confine(parent: int, scratch: Path, disk: int) -> None:
    """Die with the parent and keep what is started below, leave no core files and no file where the user is, say where
    a signal struck, and be the kernel's first choice to kill."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # it died before prctl could take effect
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for limit, soft in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, disk)):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")
    cleanup.use_process_names(os.getpid())
    tempfile.tempdir = str(scratch)
    (scratch / FOLDER).mkdir(exist_ok=True)
    os.chdir(scratch / FOLDER)
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def _load(hello: dict[str, Any], mark: int, folders: dict[str, str]) -> Backend:
    if hello["hello"] != VERSION:
        raise RuntimeError(f"runner speaks protocol {hello['hello']}, worker {VERSION}")
    os.environ.clear()
    os.environ |= hello["environment"] | folders
    preload()
    import torch

    from torchstone.conformance.backends.registry import load
    from torchstone.conformance.execution.machine import WORKER_THREADS
    from torchstone.conformance.runner import progress_mark

    torch.set_num_threads(WORKER_THREADS)
    beside_the_user = ":" in hello["backend"] or hello["ops_from"]  # under development
    if beside_the_user and hello["folder"] not in sys.path:
        sys.path.insert(0, hello["folder"])
    registration.load_modules(hello["ops_from"])
    progress_mark.ProgressMark(mark).set(progress_mark.LOADING)
    return load(hello["backend"])


def _start(backend: Backend, mark: int, *, watch: dict[str, list[str]] | None) -> Sandbox:
    from torchstone.conformance.runner.sandbox import Sandbox

    availability = backend.available()
    if not availability.ok:
        raise RuntimeError(f"backend {backend.name} is not available: {availability.reason}")
    warm_up = getattr(backend, "warm_up", None)
    if warm_up is not None:
        warm_up()
    gc.collect()
    gc.freeze()
    return Sandbox(backend, mark, watch=watch)


def _run_case(backend: Backend, header: dict[str, Any], body: bytes, compiled: Any, release: str) -> dict[str, Any]:
    """Return a case's verdict as JSON. What ``run_case`` lets through is the harness's error, not the backend's.

    ``release`` is the runner's PyTorch, which has made the case: another one may lack what the case names.
    """
    from torchstone.conformance.backends.composite import unpatched
    from torchstone.conformance.execution.run_case import run_case
    from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
    from torchstone.conformance.program.case import Case, CaseError

    started = time.perf_counter()
    stage, trace, here = Stage.RUN, "", version("torch")
    try:
        case = Case.from_bytes(body)
        with unpatched() if header.get("unpatched") else contextlib.nullcontext():
            return dataclasses.asdict(run_case(case, backend, compiled, quick=bool(header.get("quick"))))
    except MemoryError as error:
        outcome, message = Outcome.OOM, f"MemoryError: {error}"
    except Exception as error:
        if isinstance(error, CaseError) and here != release:
            stage, outcome = Stage.CAPTURE, Outcome.UNTESTED
            message = f"PyTorch {here} cannot read the case: {str(error).removeprefix('damaged case: ')}"
        else:
            outcome, message, trace = Outcome.HARNESS_ERROR, f"{type(error).__name__}: {error}", traceback.format_exc()
    verdict = Verdict(
        **header["about"], backend=backend.name, stage=stage, outcome=outcome, message=message,
        evidence={"traceback": trace} if trace else {}, seconds=time.perf_counter() - started,
    )  # fmt: skip
    return dataclasses.asdict(verdict)


if __name__ == "__main__":
    main()
