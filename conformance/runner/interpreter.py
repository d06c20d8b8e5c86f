"""Which Python a backend runs in: this one, or that of another virtual environment.

Another one runs this torchstone, never one that may be installed there, so both ends of the channel are the same code.
It needs PyTorch, NumPy, safetensors and SciPy, and what the backend needs.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.runner import interpreter_probe
from torchstone.conformance.runner.frames import VERSION
from torchstone.conformance.runner.progress_mark import describe_exit

ROOMS = ("compiler", "conformance")
LIBRARY = "lib"
PROBE_SECONDS = 300.0


@dataclass(frozen=True)
class Interpreter:
    """A Python. ``path`` is its executable; not resolved, for a virtual environment is known by the link's place."""

    path: str = sys.executable

    @classmethod
    def at(cls, place: str) -> Interpreter:
        """Return the interpreter at a path: its executable, or the folder of its virtual environment.

        Raises InputError when there is none.
        """
        path = Path(place).expanduser().absolute()
        if path.is_dir():
            path = path / "bin" / "python"
        if not path.is_file():
            raise InputError(f"no Python at {path}: give the executable, or the folder of a virtual environment")
        if not os.access(path, os.X_OK):
            raise InputError(f"{path} cannot be executed: give the executable of a Python")
        return cls(str(path))

    @property
    def foreign(self) -> bool:
        """Whether it is another than this one."""
        return self.path != sys.executable

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that it is started with; ``folder`` is where what it needs may be put.

        Relative entries of PYTHONPATH mean the user's folder; workers run in their own.
        """
        entries = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if self.foreign:
            entries.insert(0, str(_library(folder / LIBRARY)))
        return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}

    def probe(self, backend: str) -> dict[str, Any]:
        """Ask it whether it can run a backend: ``ok``, ``reason``, ``install``, and ``versions``, PyTorch's among them.

        Or ``died``, how it ended as it loaded the backend.
        Raises InputError for an interpreter that cannot run torchstone at all, or cannot load the backend.
        """
        with tempfile.TemporaryDirectory(prefix="torchstone-probe-") as folder:
            read, write = os.pipe()
            try:
                done = subprocess.run(
                    [self.path, interpreter_probe.__file__, str(write), backend, os.getcwd()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[write],
                    env=os.environ | self.environment(Path(folder)) | {"PYTHONSAFEPATH": "1"},
                    timeout=PROBE_SECONDS,
                    check=False,
                )
                answer = _probe_answer(read, done)
            except OSError as error:
                answer = {"error": str(error.strerror or error)}
            except subprocess.TimeoutExpired:
                answer = {"error": f"gave no answer in {PROBE_SECONDS:g} s"}
            finally:
                os.close(read)
                os.close(write)
        if "died" in answer:
            return answer
        if "error" in answer:
            raise InputError(f'backend "{backend}": {self.path}: {answer["error"]}')
        if answer.get("protocol") != VERSION:
            raise InputError(
                f'backend "{backend}": {self.path} speaks protocol {answer.get("protocol")} of the runner, this is '
                f"{VERSION}: it has another torchstone in its way"
            )
        return answer


def _probe_answer(answer: int, done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """What a probe has answered, or how it ended."""
    os.set_blocking(answer, False)
    try:
        lines = os.read(answer, 1 << 16).decode().splitlines()
    except BlockingIOError:
        lines = []
    words = done.stderr.decode(errors="replace").strip().splitlines()
    if lines and lines[-1] != interpreter_probe.LOADING:
        return json.loads(lines[-1])
    if lines:
        return {"died": ": ".join([describe_exit(done.returncode), *words[-1:]])}
    return {"error": words[-1] if words else describe_exit(done.returncode)}


def _library(folder: Path) -> Path:
    """Make a folder that holds this torchstone and nothing else of this environment: links to rooms and metadata."""
    package = folder / "torchstone"
    if package.exists():
        return folder
    package.mkdir(parents=True)
    import torchstone

    for path in Path(torchstone.__path__[0]).iterdir():
        if path.name not in ROOMS:
            (package / path.name).symlink_to(path)
    for room in ROOMS:
        (package / room).symlink_to(importlib.import_module(f"torchstone.{room}").__path__[0])
    place = _metadata()
    if place is None:
        raise InputError(
            "torchstone has no installed metadata: install it (pip install -e .) to run other interpreters"
        )
    (folder / place.name).symlink_to(place)
    return folder


def _metadata() -> Path | None:
    """The folder of this torchstone's metadata; what a build left in the source tree comes first on some paths."""
    for found in distributions(name="torchstone"):
        for file in found.files or ():
            if file.name == "METADATA":
                return Path(str(found.locate_file(file))).parent
    return None
