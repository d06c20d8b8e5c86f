"""Timing caches: how fast kernels were, kept from one build to the next, in this process or in a file.

TensorRT writes the device and its own version into a cache, and refuses one that does not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.runtime.tensorrt.files import replace_file

_kept: dict[str, bytes] = {}


def attach(config: Any, version: str, file: Path | None) -> None:
    """Give a builder configuration what is kept. What TensorRT refuses is left out, and written anew by ``keep``."""
    cache = config.create_timing_cache(_kept.get(version, b"") if file is None else _read(file))
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)


def keep(config: Any, version: str, file: Path | None) -> None:
    """Keep what the build has measured. A file is replaced as a whole: another process reads the old or the new one."""
    data = bytes(memoryview(config.get_timing_cache().serialize()))
    if file is None:
        _kept[version] = data
        return
    try:
        replace_file(file, (data,))
    except OSError as error:
        raise TorchstoneError(f"timing_cache: {file} cannot be written: {error.strerror}", stage="compile") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise TorchstoneError(f"timing_cache: {file} cannot be read: {error.strerror}", stage="compile") from None
