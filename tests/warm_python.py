"""A Python that has imported PyTorch, and what else it is told, and is forked for each program that a test runs.

A fresh one takes a second to come as far, again and again. What runs is a process of its own all the same, with its
own arguments, folder, environment and path; of torchstone nothing is imported in it yet.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

MESSAGE = 1 << 20


class WarmPython:
    """Run programs to their end, one at a time, where these modules are imported."""

    def __init__(self, *modules: str) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno()), "torch", *modules]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def run(
        self, *words: object, cwd: Path, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run what ``python`` is given as ``words``: a file, or ``-m`` and a module; and arguments."""
        words = tuple(map(str, words))
        env = os.environ | (environment or {})
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            request = json.dumps([words, str(cwd), env]).encode()
            socket.send_fds(self._channel, [request], [out.fileno(), err.fileno()])
            code = json.loads(self._channel.recv(MESSAGE))
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read())
        return subprocess.CompletedProcess(words, code, *texts)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


def serve(channel: socket.socket) -> None:
    """Fork for each request; return in the child, ready to run it. Ends with the channel."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MESSAGE, 2)
        if not data:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            channel.close()
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            become(*json.loads(data))
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        channel.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def become(words: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """Be the Python that was started with these words, in this folder and environment."""
    here = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    there = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.chdir(folder)
    os.environ.clear()
    os.environ |= environment
    kind, *arguments = words
    first = folder if kind == "-m" else str(Path(kind).absolute().parent)
    sys.path[:] = [first, *there, *(entry for entry in sys.path[1:] if entry not in here)]
    if kind == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(kind, run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
