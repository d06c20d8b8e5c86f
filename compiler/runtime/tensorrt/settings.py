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

OPTIONS = ("profiles", "workspace", "timing_cache")


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine is built.

    ``profiles`` go by symbols, ``names`` is what the user calls these. ``workspace`` are the bytes of scratch memory
    that a layer may use, None: all of the device. ``timing_cache`` is a file, None: the memory of this process.
    """

    profiles: tuple[Profile, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    workspace: int | None = None
    timing_cache: Path | None = None


def settings_of(sizes: Mapping[str, SizeRange], example: Mapping[str, int], options: Mapping[str, Any]) -> Settings:
    """Return the settings for a program with these sizes, which are ``example`` for its example.

    TorchstoneError says which option is wrong, and why.
    """
    workspace, file = options.get("workspace"), options.get("timing_cache")
    if workspace is not None and (type(workspace) is not int or workspace <= 0):
        raise TorchstoneError(f"workspace: a positive number of bytes is needed, got {workspace!r}", stage="lower")
    if file is not None and not isinstance(file, str | os.PathLike):
        raise TorchstoneError(f"timing_cache: the path of a file is needed, got {file!r}", stage="lower")
    path = None if file is None else Path(os.fspath(file))
    if path is not None and not path.parent.is_dir():
        raise TorchstoneError(f"timing_cache: there is no folder {path.parent}", stage="lower")
    profiles = profiles_of(sizes, options.get("profiles"))
    check_example(profiles, sizes, example)
    return Settings(profiles, {s: r.name for s, r in sizes.items()}, workspace, path)
