"""What Inductor's first kernel leaves, kept for later workers and runs: without it a worker takes 10 s longer.

These are C++ headers, precompiled (150 MB), and libraries that tell which vector units the machine has. Inductor keeps
them for all of its runs and writes them where they are used: whoever is killed on the way leaves half of one. So each
worker has folders of its own for them, and what is whole is copied to the user's cache, and renamed there. Their names
tell content, compiler and options.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.compiler._torch import dynamo
from torchstone.conformance.errors import InputError
from torchstone.conformance.files import replace_file, user_cache

UNUSED_SECONDS = 30 * 24 * 3600
"""What was last taken so long before others is removed: it is of another compiler, or another PyTorch."""


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Let Inductor find the files that were kept, and keep those that it makes in the block."""
    folders = list(_folders())
    with contextlib.suppress(OSError, RuntimeError):
        for folder in folders:
            _take(folder)
    there = {file for folder in folders for file in _files(folder.own, folder.suffixes)}
    yield
    with contextlib.suppress(OSError, RuntimeError, InputError):
        for folder in folders:
            _keep(folder, there)


def give_to(temporary: Path) -> bool:
    """Let Inductor find the files that were kept where it will run with a temporary folder of its own; whether it does.

    To be called before it runs.
    """
    with contextlib.suppress(OSError, RuntimeError):
        own = temporary / Path(dynamo.default_inductor_cache_dir()).name
        for folder in _folders():
            _take(replace(folder, own=own / Path(folder.own).name if folder.name == "headers" else own))
        return any(own.rglob("*.gch"))
    return False


@dataclass(frozen=True)
class _Folder:
    """Where Inductor looks for files here, what they are called in the user's cache, and their suffixes."""

    own: Path
    name: str
    suffixes: list[str]

    @property
    def kept(self) -> Path:
        return user_cache() / "inductor" / self.name


def _folders() -> Iterator[_Folder]:
    if dynamo.is_gcc():  # others take a header only where it was made
        yield _Folder(Path(dynamo.header_folder), "headers", [".h", ".gch"])
    yield _Folder(Path(dynamo.inductor_cache_dir()), "libraries", [".so"])  # kernels have more suffixes


def _files(folder: Path, suffixes: list[str]) -> list[Path]:
    return [file for file in folder.rglob(f"*{suffixes[-1]}") if file.suffixes == suffixes]


def _take(folder: _Folder) -> None:
    for file in _files(folder.kept, folder.suffixes):
        link = folder.own / file.relative_to(folder.kept)
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
        os.utime(file)


def _keep(folder: _Folder, there: Collection[Path]) -> None:
    for file in _files(folder.own, folder.suffixes):
        if file not in there:
            with file.open("rb") as made, replace_file(folder.kept / file.relative_to(folder.own)) as copy:
                shutil.copyfileobj(made, copy)
    taken = {file: file.stat().st_mtime for file in _files(folder.kept, folder.suffixes)}
    for file, at in taken.items():
        if at < max(taken.values()) - UNUSED_SECONDS:
            file.unlink()
