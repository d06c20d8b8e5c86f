"""The processes as the runner sees them: the fork server, and one worker with its channel, output, memory and death."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from torchstone.conformance.custom import registration
from torchstone.conformance.execution.line_tracer import Fingerprints
from torchstone.conformance.runner import forkserver
from torchstone.conformance.runner.cleanup import LockedFolder, remove_folder
from torchstone.conformance.runner.frames import VERSION, FrameDecoder, Header, ProtocolError, encode_frame
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.progress_mark import Progress, create_mark, describe_exit, read_progress
from torchstone.conformance.runner.worker import END_OF_CASE, resident

TAIL_BYTES = 8192
CHUNK = 1 << 18
LOG = "forkserver.log"
CLOSE_SECONDS = 20.0
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


class ForkServerDied(Exception):
    """The fork server has died, and every worker with it."""


class ForkServerClient:
    """The process that forks the workers, with a temporary folder for them. Pools that are open together share it."""

    _running: ClassVar[dict[Interpreter, ForkServerClient]] = {}

    @classmethod
    def shared(cls, interpreter: Interpreter) -> ForkServerClient:
        """Return the fork server of an interpreter; ``close`` must be called as often."""
        server = cls._running.get(interpreter)
        if server is None:
            server = cls._running[interpreter] = ForkServerClient(interpreter)
        server.users += 1
        return server

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.folder = LockedFolder()
        self.users = 0
        self.up = False
        self.workers: dict[int, WorkerProcess] = {}
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = ["-P", "-m", forkserver.__name__, str(theirs.fileno()), str(os.getpid()), str(self.folder.path)]
        with theirs, open(self.folder.path / LOG, "wb") as log:
            try:
                self.process = subprocess.Popen(
                    [interpreter.path, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=os.environ | _ENVIRONMENT | interpreter.environment(self.folder.path),
                )
            except BaseException:
                self.control.close()
                self.folder.close()
                raise
        self.control.setblocking(False)

    def start(
        self,
        backend: str,
        cache: str,
        disk: int,
        describe_only: bool = False,
        watch: Fingerprints | None = None,
        preload: Sequence[str] = (),
    ) -> WorkerProcess:
        """Ask for a worker; it will say when it is ready, or what the backend is and no more. Raises ForkServerDied.

        ``watch``: it tells what of the backend's own runs, and which of it is not what these say (``LineTracer``).
        ``preload``: modules that the fork server imports before it forks the worker.
        """
        number = next(self._numbers)
        scratch = self.folder.path / f"worker-{number}"
        worker = WorkerProcess(self, number, scratch, self.folder.path / cache, disk, preload)
        self.workers[number] = worker
        environment = dict(os.environ) | _ENVIRONMENT | self.interpreter.environment(self.folder.path)
        hello = {
            "hello": VERSION,
            "backend": backend,
            "folder": os.getcwd(),
            "environment": environment,
            "describe_only": describe_only,
            "watch": watch,
            "torch": version("torch"),
            "ops_from": registration.modules(),
        }
        worker.send(hello)
        return worker

    def send_request(self, request: Header, descriptors: tuple[int, ...] = ()) -> None:
        """Send a request. Raises ForkServerDied."""
        with self._lock:
            try:
                self.control.setblocking(True)
                socket.send_fds(self.control, [json.dumps(request).encode()], descriptors)
            except OSError as error:
                raise ForkServerDied from error
            finally:
                self.control.setblocking(False)

    def receive(self, wait: bool = False) -> None:
        """Read what the fork server has to say of its workers. Raises ForkServerDied."""
        with self._lock:
            self.control.setblocking(wait)
            try:
                while data := self.control.recv(forkserver.MESSAGE):
                    self.control.setblocking(False)
                    message: dict[str, Any] = json.loads(data)
                    if "up" in message:
                        self.up = True
                    elif "pid" in message:
                        self.workers[message["worker"]].pid = message["pid"]
                    elif "died" in message:
                        self.workers.pop(message["worker"]).code = message["died"]
            except BlockingIOError:
                return
            except OSError as error:
                raise ForkServerDied from error
            raise ForkServerDied

    def kill_worker(self, worker: WorkerProcess) -> None:
        """Kill a worker and wait until it is dead. Raises ForkServerDied."""
        if worker.code is None:
            self.send_request({"kill": worker.number})
        while worker.code is None:
            self.receive(wait=True)

    def last_output(self) -> str:
        """The last line that the fork server printed, or how it ended."""
        with contextlib.suppress(OSError):
            lines = (self.folder.path / LOG).read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
        code = self.process.poll()
        return "" if code is None else describe_exit(code)

    def close(self, gone: bool = False) -> None:
        """Let go of it; the last one, or who has found it ``gone``, ends it and everything below it."""
        self.users -= 1
        if gone or self.users == 0:
            for interpreter in [one for one, server in self._running.items() if server is self]:
                del self._running[interpreter]
        if self.users:
            return
        if not self.up:
            self.process.kill()
        self.control.close()
        try:
            self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for worker in list(self.workers.values()):
            worker.close()
        self.folder.close()


class WorkerProcess:
    """A worker in a session of its own, with a temporary folder of its own.

    Nothing here blocks on the worker: sends are buffered, reads take what is there. ``cache`` outlives the process
    so that its successor starts warm; ``scratch`` goes with it. ``code`` is its exit code, once it has died.
    """

    def __init__(
        self, server: ForkServerClient, number: int, scratch: Path, cache: Path, disk: int, preload: Sequence[str]
    ) -> None:
        scratch.mkdir(parents=True)
        cache.mkdir(parents=True, exist_ok=True)
        self.number = number
        self.scratch = scratch
        self.pid = 0
        self.code: int | None = None
        self.mark = create_mark()
        self.channel, theirs = socket.socketpair()
        self.output, write_end = os.pipe()
        self._server = server
        try:
            fork = os.environ.get("TORCHSTONE_FORK") != "0"
            paths = {"scratch": str(scratch), "cache": str(cache)}
            request = {"worker": number, **paths, "disk": disk, "fork": fork, "preload": list(preload)}
            server.send_request(request, (theirs.fileno(), self.mark, write_end))
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self.channel.setblocking(False)
        os.set_blocking(self.output, False)
        self.channel_open = True
        self._decoder = FrameDecoder()
        self._unsent = bytearray()
        self._tail = bytearray()
        self._dumped: tuple[Progress, str] | None = None

    # -- the channel --------------------------------------------------------------------------------------------

    def send(self, header: Header, body: bytes = b"") -> None:
        """Queue a frame and send as much as the socket takes now."""
        self._unsent += encode_frame(header, body)
        self.flush()

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it. A dead worker's frames are dropped."""
        while self._unsent and self.channel_open:
            try:
                count = self.channel.send(self._unsent[:CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return
            del self._unsent[:count]

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def frames(self) -> list[tuple[Header, bytes]]:
        """Return the frames that have arrived. ``channel_open`` turns false at the end of the stream."""
        frames: list[tuple[Header, bytes]] = []
        while self.channel_open:
            try:
                chunk = self.channel.recv(CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.channel_open = False
                break
            try:
                frames += self._decoder.feed(chunk)
            except ProtocolError:
                self.channel_open = False  # whoever wrote this was not the worker's loop: let it die as a crash
                break
            if self._decoder.broken:
                self.channel_open = False
            if len(chunk) < CHUNK:
                break
        return frames

    # -- its output ---------------------------------------------------------------------------------------------

    def read_output(self, limit: int = 4 << 20) -> bool:
        """Move what the worker printed into the tail, at most ``limit`` bytes; false at the end of the stream."""
        while limit > 0:
            try:
                chunk = os.read(self.output, CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not chunk:
                return False
            limit -= len(chunk)
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]
        return True

    @property
    def tail(self) -> str:
        """The end of what the worker printed since its last case ended."""
        if self._dumped is not None:
            return self._dumped[1]
        return _clean(self._tail.rpartition(END_OF_CASE)[2])

    # -- life and death -----------------------------------------------------------------------------------------

    def resident(self) -> int:
        return resident(self.pid) if self.pid and self.code is None else 0

    def progress(self) -> Progress:
        """Say where the worker is, or was when it died, or when it was asked for its stack."""
        return read_progress(self.mark) if self._dumped is None else self._dumped[0]

    def dump_stack(self, wait: float = 0.2) -> None:
        """Ask a hanging worker for its Python stack, and let that be its last words.

        The signal may end what the worker hangs in; nothing that it does or prints after it counts, so the *first*
        output after the signal is kept, up to the end of the case.
        """
        self.read_output()
        progress, before = self.progress(), self.tail
        stack = bytearray()
        with contextlib.suppress(ProcessLookupError):
            if self.pid and self.code is None:
                os.kill(self.pid, signal.SIGUSR1)
            deadline = time.monotonic() + wait
            while time.monotonic() < deadline and len(stack) < TAIL_BYTES and END_OF_CASE not in stack:
                try:
                    stack += os.read(self.output, TAIL_BYTES)
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    break
        self._dumped = (progress, f"{before}\n{_clean(stack.partition(END_OF_CASE)[0])}".strip())

    def stop(self) -> None:
        """Kill the process and whatever it started, and remove its folder. Raises ForkServerDied, all the same."""
        try:
            self._server.kill_worker(self)
        finally:
            self.read_output()
            self.close()

    def close(self) -> None:
        """Let go of what this process holds of the worker, and remove its folder. Again is no harm."""
        if self.mark < 0:
            return
        self.channel.close()
        os.close(self.output)
        os.close(self.mark)
        self.mark = -1
        remove_folder(self.scratch)


def _clean(output: bytes | bytearray) -> str:
    """Return output as text, without faulthandler's list of every native module in the process."""
    lines = output.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if not line.startswith("Extension modules: ")).strip()
