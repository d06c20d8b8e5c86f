"""Engines kept as files of a folder: built once, read by every later process.

A file is two lines and the plan, TensorRT's serialized engine:

    torchstone engine 1
    {"device": "simulator", "key": "5e0c…", "sha256": "9b74…", "size": 1024, …}
    <1024 bytes>

Its name is the key: a hash of all that the engine follows from. A file that is not as its lines say, or of another
TensorRT or device, is refused and the engine built again. The checksum tells damage, not intent: TensorRT trusts a
plan, so who writes into the folder has to be trusted too.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, TorchstoneWarning
from torchstone.compiler.runtime.tensorrt import Api
from torchstone.compiler.runtime.tensorrt.files import replace_file

_FORMAT = 1
_KIND = b"torchstone engine "
_LINE = 4096  # no header is longer
_NAMES = {"tensorrt": "TensorRT", "device": "device", "platform": "platform", "key": "key"}


class EngineCacheWarning(TorchstoneWarning):
    """A kept engine is not used, or a new one is not kept. The program runs all the same, after a build."""


class Refused(Exception):
    """Why a file is not used."""


def made_by(api: Api) -> dict[str, str]:
    """Return what a plan is bound to: the version of TensorRT, the current device, and the platform."""
    device = "simulator"
    if api.real:
        import torch

        major, minor = torch.cuda.get_device_capability()
        device = f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"
    system = f"{platform.system()} {platform.machine()}"
    return {"tensorrt": api.module.__version__, "device": device, "platform": system}


def key_of(network: str, made: Mapping[str, str], told: Mapping[str, Any]) -> str:
    """Return the key of an engine.

    ``network`` is the digest of the network's transcript, ``made`` what the plan is bound to, and ``told`` what else
    the builder is told, as JSON can hold it: flags, limits, profiles.
    """
    text = json.dumps([_FORMAT, network, made, told], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one engine in a folder."""

    folder: Path
    made: Mapping[str, str]
    key: str

    @property
    def file(self) -> Path:
        return self.folder / f"{self.key}.engine"

    def load(self, deserialize: Callable[[bytes], Any]) -> Any:
        """Return the engine that ``deserialize`` makes of the plan; None where there is none.

        ``deserialize`` raises Refused for a plan that it does not take. An EngineCacheWarning tells of a file that is
        refused.
        """
        try:
            with self.file.open("rb") as file:
                return deserialize(self._plan(file))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
        except Refused as error:
            why = str(error)
        _warn(f"{self.file} is not used, and is built again: {why}")
        return None

    def check(self) -> None:
        """Make the folder, and write into it and take it back: a build is too long to find out after it.

        TorchstoneError names the folder if that cannot be done.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            why = f"engine_cache: {self.folder} cannot be written: {error.strerror}"
            raise TorchstoneError(why, stage="compile") from None

    def keep(self, plan: Any) -> None:
        """Write the plan, any buffer, in the place of what is there. An EngineCacheWarning tells what is against it."""
        data = memoryview(plan)
        checks = {"size": data.nbytes, "sha256": hashlib.sha256(data).hexdigest()}
        header = json.dumps({**self.made, "key": self.key, **checks}, sort_keys=True)
        try:
            replace_file(self.file, (_KIND, f"{_FORMAT}\n{header}\n".encode(), data))
        except OSError as error:
            _warn(f"{self.file} is not kept: {error.strerror}")

    def _plan(self, file: Any) -> bytes:
        """Return the plan in an open file. Refused tells what is wrong with it."""
        kind = file.readline(len(_KIND) + 8)
        if not kind.startswith(_KIND):
            raise Refused("it is no engine of torchstone")
        if kind != b"%s%d\n" % (_KIND, _FORMAT):
            raise Refused(f"it has another format than {_FORMAT}: {kind[len(_KIND) :].strip()!r}")
        try:
            header = json.loads(file.readline(_LINE))
            size, checksum = header["size"], header["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("its header is damaged") from None
        for name, here in {**self.made, "key": self.key}.items():
            if header.get(name) != here:
                raise Refused(f"it is of {_NAMES[name]} {str(header.get(name))[:100]!r}, and this is {here!r}")
        plan = file.read()
        if len(plan) != size:
            raise Refused(f"it has {len(plan)} bytes of a plan of {size}")
        if hashlib.sha256(plan).hexdigest() != checksum:
            raise Refused("its checksum does not fit")
        return plan


def _warn(message: str) -> None:
    warnings.warn(f"engine_cache: {message}", EngineCacheWarning, stacklevel=2)
