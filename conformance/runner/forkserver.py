"""The fork server: a process that has imported PyTorch, and forks a worker whenever it is asked to.

So a worker costs a fork, not the seconds of an import. Forking is safe here because nothing has happened yet: one
thread, no device touched, no backend loaded, and of backends that torchstone ships those modules imported at most that
do no such thing (``preload`` in ``backends.protocol``). Where importing PyTorch starts threads, or the user says
``TORCHSTONE_FORK=0``, each worker is a fresh interpreter instead.

It buries its workers, too. Each worker is a *subreaper*: whatever its backend starts stays below it, however often it
forks and whatever session it opens. When the worker dies, what it left behind comes to the fork server, which kills it.
And when the runner dies, of SIGKILL or anything else, the fork server ends the workers and removes the pool's folder.

    runner -> fork server   {"worker": N, "scratch": PATH, "cache": PATH, "disk": BYTES, "fork": BOOL, "preload":
                            [MODULE]} + descriptors of its channel, its mark and its output; or {"kill": N}
    fork server -> runner   {"up": true}, {"worker": N, "pid": PID}, {"worker": N, "died": EXIT CODE}
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torchstone.conformance.runner import cleanup, worker
from torchstone.conformance.runner.cleanup import remove_folder

MESSAGE = 1 << 16
FORKS_BEFORE_PRELOAD = 4
"""Who needs so many workers sees failures, and the imports that they take are better made here, once."""
POLL_MILLISECONDS = 1000
"""After which it looks whether the runner is still there, should its end be held by others."""


class ForkServer:
    """Started as ``python -m torchstone.conformance.runner.forkserver FD PARENT ROOT``."""

    def __init__(self, control: socket.socket, parent: int, root: Path) -> None:
        self.control = control
        self.parent = parent
        self.root = root
        self.forks = 0
        self.preloaded: set[str] = set()  # modules of backends
        self.pids: dict[int, int] = {}  # of each living worker: its number, by process
        self.wake, self.wakes = os.pipe()
        for descriptor in (self.wake, self.wakes):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Fork and reap until the runner goes, then end everything."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        self.send(up=True)
        with contextlib.suppress(ConnectionError):
            while os.getppid() == self.parent:
                ready = [descriptor for descriptor, _ in poll.poll(POLL_MILLISECONDS)]
                if self.wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, MESSAGE)
                if self.control.fileno() in ready and not self.handle_request():
                    break
                self.reap()
        for pid in list(self.pids):
            _kill(os.killpg, pid)
        while self.pids:
            with contextlib.suppress(ConnectionError):
                self.reap()
            time.sleep(0.002)
        remove_folder(self.root)

    def send(self, **message: Any) -> None:
        self.control.send(json.dumps(message).encode())

    def handle_request(self) -> bool:
        """Do what the runner asks; false when it is gone."""
        data, descriptors, _, _ = socket.recv_fds(self.control, MESSAGE, 3)
        if not data:
            return False
        request = json.loads(data)
        if "kill" in request:
            for pid, number in self.pids.items():
                if number == request["kill"]:
                    _kill(os.killpg, pid)
                    _kill(os.kill, pid)  # it may not have come to have a group
            return True
        number = request.pop("worker")
        pid = self.fork(descriptors, **request)
        self.pids[pid] = number
        for descriptor in descriptors:
            os.close(descriptor)
        self.send(worker=number, pid=pid)
        return True

    def fork(self, descriptors: list[int], scratch: str, cache: str, disk: int, fork: bool, preload: list[str]) -> int:
        channel, mark, output = descriptors
        argv = [channel, mark, os.getpid(), scratch, cache, disk]
        if not fork or len(os.listdir("/proc/self/task")) > 1:
            for descriptor in descriptors:
                os.set_inheritable(descriptor, True)
            command = [sys.executable, "-P", "-m", worker.__name__, *map(str, argv)]
            duplicates = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
            return os.posix_spawn(sys.executable, command, os.environ, file_actions=duplicates, setsid=True)
        self.forks += 1
        new = [module for module in preload if module not in self.preloaded]
        if new or self.forks == FORKS_BEFORE_PRELOAD:
            self.preload(new)
        pid = os.fork()
        if pid:
            return pid
        try:  # here begins the worker; nothing of the fork server's is left in it
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            self.control.close()
            for descriptor in (self.wake, self.wakes, output):
                os.close(descriptor)
            worker.run_worker(*argv)
        finally:
            os._exit(1)

    def preload(self, modules: list[str]) -> None:
        """Import what workers need. Where the import of a backend's module fails it will in a worker, which tells."""
        worker.preload_decompositions()
        self.preloaded.update(modules)
        for module in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        freeze_objects()

    def reap(self) -> None:
        """Reap who has died, kill what a dead worker has left behind, and tell the runner of the worker."""
        dead: list[tuple[int, int]] = []
        gone: set[int] = set()
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            if found.si_pid in self.pids:
                _kill(os.killpg, found.si_pid)  # before it is reaped: the group's number is still its own
            _, status = os.waitpid(found.si_pid, 0)
            gone.add(found.si_pid)
            if found.si_pid in self.pids:
                dead.append((self.pids.pop(found.si_pid), os.waitstatus_to_exitcode(status)))
        if dead:  # what has come here as its parent died was a dead worker's: a living one keeps its own
            gone |= kill_children(self.pids)
        cleanup.remove_shared_memory(gone)
        for number, code in dead:
            self.send(worker=number, died=code)


def kill_children(exclude: Collection[int]) -> set[int]:
    """Kill the children of this process, and what comes to it as they die, except some; return those, now dead."""
    killed: set[int] = set()
    while strays := [pid for pid in _children() if pid not in exclude]:
        for pid in strays:
            _kill(os.kill, pid)
        for pid in strays:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        killed |= set(strays)
    return killed


def _kill(how: Any, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(pid, signal.SIGKILL)


def _children() -> list[int]:
    """The processes whose parent this one is; those already being reaped too."""
    me, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                text = Path("/proc", name, "stat").read_text(errors="replace")
                if text.rpartition(")")[2].split()[1] == me:
                    found.append(int(name))
    return found


def freeze_objects() -> None:
    """Let no collection in a worker touch, and so copy, what it has from here."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Import PyTorch, then serve the runner until its end of the socket closes."""
    descriptor, parent = map(int, sys.argv[1:3])
    os.set_inheritable(descriptor, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the runner, which then ends this
        signal.signal(number, signal.SIG_IGN)
    worker.prctl(worker.PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    root = Path(sys.argv[3])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(root / "cache")  # Dynamo makes one as it is imported
    worker.preload()
    freeze_objects()
    ForkServer(socket.socket(fileno=descriptor), parent, root).serve()


if __name__ == "__main__":
    main()
