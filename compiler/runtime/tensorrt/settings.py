"""What a user may say of how an engine is built: the options of ``compile`` for the target ``tensorrt``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir.sizes import SizeRange
from torchstone.compiler.runtime.tensorrt.profiles import Profile, check_example, profiles_of

OPTIONS = ("profiles", "workspace", "timing_cache", "engine_cache")


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine is built.

    ``profiles`` go by symbols, ``names`` is what the user calls these. ``workspace`` are the bytes of scratch memory
    that a layer may use, None: all of the device. ``timing_cache`` is a file, None: the memory of this process.
    ``engine_cache`` is a folder that engines are kept in, None: they are not.
    """

    profiles: tuple[Profile, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    workspace: int | None = None
    timing_cache: Path | None = None
    engine_cache: Path | None = None


def settings_of(sizes: Mapping[str, SizeRange], example: Mapping[str, int], options: Mapping[str, Any]) -> Settings:
    """Return the settings for a program with these sizes, which are ``example`` for its example.

    TorchstoneError says which option is wrong, and why.
    """
    workspace = options.get("workspace")
    if workspace is not None and (type(workspace) is not int or workspace <= 0):
        raise TorchstoneError(f"workspace: a positive number of bytes is needed, got {workspace!r}", stage="lower")
    file, folder = _path(options, "timing_cache", "file"), _path(options, "engine_cache", "folder")
    if file is not None and not file.parent.is_dir():
        raise TorchstoneError(f"timing_cache: there is no folder {file.parent}", stage="lower")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise TorchstoneError(f"engine_cache: {folder} is no folder", stage="lower")
    profiles = profiles_of(sizes, options.get("profiles"))
    check_example(profiles, sizes, example)
    return Settings(profiles, {s: r.name for s, r in sizes.items()}, workspace, file, folder)


def _path(options: Mapping[str, Any], name: str, kind: str) -> Path | None:
    given = options.get(name)
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TorchstoneError(f"{name}: the path of a {kind} is needed, got {given!r}", stage="lower")
    return None if given is None else Path(os.fspath(given))
