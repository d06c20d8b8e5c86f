"""What Inductor's first kernel leaves, kept for later workers and runs: it takes 15 s of the processor to make.

These are C++ headers, precompiled (150 MB), and libraries that tell which vector units the machine has. Inductor keeps
them for all of its runs and writes them where they are used: whoever is killed on the way leaves half of one. So each
worker has folders of its own for them, and what is whole is copied to the user's cache, and renamed there. Their names
tell content, compiler and options.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchstone.compiler._torch import dynamo
from torchstone.conformance.errors import InputError
from torchstone.conformance.files import replace_file, user_cache

UNUSED_SECONDS = 30 * 24 * 3600
"""What was last taken so long before others is removed: it is of another compiler, or another PyTorch."""


def take() -> None:
    """Let Inductor find the files that were kept."""
    with contextlib.suppress(OSError, RuntimeError):
        for own, kept, suffixes in _folders():
            for file in _files(kept, suffixes):
                link = own / file.relative_to(kept)
                if not link.exists():
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(file)
                os.utime(file)


def keep() -> None:
    """Keep the files that Inductor has made here so far. To be called when it is making none."""
    with contextlib.suppress(OSError, RuntimeError, InputError):
        for own, kept, suffixes in _folders():
            for file in _files(own, suffixes):
                if not file.is_symlink():
                    with file.open("rb") as made, replace_file(kept / file.relative_to(own)) as copy:
                        shutil.copyfileobj(made, copy)
            taken = {file: file.stat().st_mtime for file in _files(kept, suffixes)}
            for file, at in taken.items():
                if at < max(taken.values()) - UNUSED_SECONDS:
                    file.unlink()


def _folders() -> Iterator[tuple[Path, Path, list[str]]]:
    """Where Inductor looks for files here, where they are kept, and their suffixes: those of kernels have more."""
    if dynamo.is_gcc():  # others take a header only where it was made
        yield Path(dynamo.header_folder), user_cache() / "inductor" / "headers", [".h", ".gch"]
    yield Path(dynamo.inductor_cache_dir()), user_cache() / "inductor" / "libraries", [".so"]


def _files(folder: Path, suffixes: list[str]) -> list[Path]:
    return [file for file in folder.rglob(f"*{suffixes[-1]}") if file.suffixes == suffixes]
