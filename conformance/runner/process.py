"""One worker process as the runner sees it: spawn, channel, output tail, memory, death."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from torchstone.conformance.runner import marks
from torchstone.conformance.runner.protocol import VERSION, Decoder, Header, ProtocolError, encode
from torchstone.conformance.runner.worker import CASE_ENDS, resident
from torchstone.conformance.verdict import Stage

TAIL_BYTES = 8192
CHUNK = 1 << 18


class WorkerProcess:
    """A spawned worker in a session of its own, with a temporary folder of its own.

    Nothing here blocks on the worker: sends are buffered, reads take what is there. ``cache`` outlives the process
    so that its successor starts warm; ``scratch`` goes with it.
    """

    def __init__(self, backend: str, scratch: Path, cache: Path) -> None:
        scratch.mkdir(parents=True)
        cache.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch
        self.mark = marks.create()
        self.channel, theirs = socket.socketpair()
        self.output, write_end = os.pipe()
        shared = (theirs.fileno(), self.mark)
        descriptors = [str(fd) for fd in shared]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torchstone.conformance.runner.worker", *descriptors, _me()],
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=shared,
                start_new_session=True,
                env=_environment(scratch, cache),
            )
        except BaseException:
            self.channel.close()
            os.close(self.output)
            os.close(self.mark)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self.channel.setblocking(False)
        os.set_blocking(self.output, False)
        self.pid = self.process.pid
        self.death = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        self.started = time.monotonic()
        self.channel_open = True
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._tail = bytearray()
        self._probed: tuple[Stage | None, str] | None = None
        self.send({"hello": VERSION, "backend": backend})

    # -- the channel --------------------------------------------------------------------------------------------

    def send(self, header: Header, body: bytes = b"") -> None:
        """Queue a frame and send as much as the socket takes now."""
        self._unsent += encode(header, body)
        self.push()

    def push(self) -> None:
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
        if self._probed is not None:
            return self._probed[1]
        return _clean(self._tail.rpartition(CASE_ENDS)[2])

    # -- life and death -----------------------------------------------------------------------------------------

    def resident(self) -> int:
        return resident(self.pid)

    def stage(self) -> Stage | None:
        """Say where in its case the worker is, or was when it died; None before the backend was called."""
        if self._probed is not None:
            return self._probed[0]
        return marks.read(self.mark)

    def in_batch(self) -> bool:
        """Say whether the worker is, or was when it died, compiling many cases together."""
        return marks.in_batch(self.mark)

    def exited(self) -> bool:
        """Say whether the process is gone, without reaping it: its group must still be there to be killed."""
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def probe(self, wait: float = 0.2) -> None:
        """Ask a hanging worker for its Python stack, and let that be its last words.

        The signal may end what the worker hangs in; nothing that it does or prints after it counts, so the *first*
        output after the signal is kept, up to the end of the case.
        """
        self.read_output()
        stage, before = self.stage(), self.tail
        stack = bytearray()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
            deadline = time.monotonic() + wait
            while time.monotonic() < deadline and len(stack) < TAIL_BYTES and CASE_ENDS not in stack:
                try:
                    stack += os.read(self.output, TAIL_BYTES)
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    break
        self._probed = (stage, f"{before}\n{_clean(stack.partition(CASE_ENDS)[0])}".strip())

    def stop(self) -> int:
        """Kill the process and whatever it started, reap it, remove its folder. Returns its exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self.process.wait()
        self.read_output()
        self.channel.close()
        os.close(self.output)
        os.close(self.mark)
        if self.death is not None:
            os.close(self.death)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return code


def _clean(output: bytes | bytearray) -> str:
    """Return output as text, without faulthandler's list of every native module in the process."""
    lines = output.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if not line.startswith("Extension modules: ")).strip()


def describe_exit(code: int) -> str:
    """Say how a process ended: ``killed by SIGSEGV`` or ``exited with code 3``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _me() -> str:
    return str(os.getpid())


def _environment(scratch: Path, cache: Path) -> dict[str, str]:
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folders = {"TMPDIR": str(scratch), "TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    return os.environ | one | folders | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONHASHSEED": "0"}
