"""Writing a file whole: whoever reads it finds the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from torchstone.conformance.errors import InputError


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of ``path`` when the block ends well, and is gone when it does not.

    Folders are made. Raises InputError for what cannot be written, and for a path that is no regular file.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise InputError(f"cannot write {path}: it is not a file; give another path")
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in a name
        raise _refused(path, error) from error
    try:
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
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: Exception) -> InputError:
    why = getattr(error, "strerror", None) or str(error)
    return InputError(f"cannot write {path}: {why}; give another path")
