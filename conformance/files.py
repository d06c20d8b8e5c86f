"""Writing a file whole: whoever reads it finds the old one or the new one, never half of one.

What is written at the end of long work is tried before it: ``check_file`` and ``check_folder`` write what they take
away again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from torchstone.conformance.errors import InputError

LEAST_ROOM = 1 << 16
"""Bytes that have to fit on a disk before it is worth starting."""


def user_cache() -> Path:
    """The folder for what is kept between runs and can be made again. Raises ``RuntimeError`` for who has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchstone"


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of ``path`` when the block ends well, and is gone when it does not.

    Folders are made. Raises InputError for what cannot be written, and for a path that is no regular file.
    """
    with _refusals(path):
        target = _file(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        try:
            with open(handle, "wb") as file:
                yield file
            os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o644)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def check_file(path: Path, option: str = "path") -> None:
    """Raise InputError where a file could not be written now. Nothing is left behind; folders that are missing may be.

    ``option`` is what the message asks for another of.
    """
    with _refusals(path, option):
        target = _file(path, option)
        if target.exists():
            target.open("ab").close()  # who made a file read-only does not want it replaced
        _write_into(target.parent)


def check_folder(path: Path, option: str = "path") -> None:
    """Raise InputError where no files could be written into a folder now, or it could not be made."""
    with _refusals(path, option):
        target = _resolved(path, option)
        if target.exists() and not target.is_dir():
            raise InputError(f"cannot write to {path}: it is not a folder; give another {option}")
        _write_into(target)


def prepare_folder(folder: Path) -> Path:
    """Make a folder and see that it can be written to. Raises InputError."""
    check_folder(folder, "--out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}; give another --out") from error
    return folder


def _file(path: Path, option: str = "path") -> Path:
    """Return what a path leads to, which is a regular file or nothing yet. Raises InputError."""
    target = _resolved(path, option)
    if target.exists() and not target.is_file():
        what = "is a folder" if target.is_dir() else "is not a file"
        raise InputError(f"cannot write to {path}: it {what}; give another {option}")
    return target


def _resolved(path: Path, option: str) -> Path:
    try:
        target = path.resolve()
        target.exists()
    except (RuntimeError, ValueError) as error:  # a loop of links, a NUL in a name
        raise InputError(f"cannot write to {path}: {error}; give another {option}") from error
    return target


def _write_into(folder: Path) -> None:
    """Write as much as a small result takes into a folder, or the nearest one above it that is there."""
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    with tempfile.TemporaryFile(dir=nearest) as file:
        file.write(bytes(LEAST_ROOM))
        file.flush()


@contextlib.contextmanager
def _refusals(path: Path, option: str = "path") -> Iterator[None]:
    """Turn what the system refuses into InputError."""
    try:
        yield
    except OSError as error:
        what = "make room, or give" if error.errno == errno.ENOSPC else "give"
        raise InputError(f"cannot write to {path}: {error.strerror or error}; {what} another {option}") from error
