"""Where a pool keeps its temporary files, and how they go even when nobody is left to remove them.

A pool's folder is locked for as long as its process lives: the kernel lets go of the lock when it dies, of whatever. So
a folder that can be locked is nobody's, and the next pool to start removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "torchstone-pool-"
LOCK = "lock"


class LockedFolder:
    """A locked temporary folder. Raises OSError when none can be made."""

    def __init__(self) -> None:
        remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / LOCK).exists():  # else another pool swept it before it was locked
                return
            os.close(self._lock)

    def close(self) -> None:
        """Remove it."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_abandoned() -> None:
    """Remove the folders of pools whose process is gone: this user's own, and no link to anywhere."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(path)
            finally:
                os.close(lock)


def remove_folder(path: Path) -> None:
    """Remove a folder, its unwritable parts too; never follows a link out of it."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IRWXU)
        for folder, inside, _ in os.walk(path):  # opened before the walk enters it, which root alone can do without
            for name in (name for name in inside if not os.path.islink(os.path.join(folder, name))):
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(folder, name), stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)


def disk_usage(path: str | Path, most: int) -> int:
    """Return the bytes that a folder takes on disk, without looking further once it is over ``most``."""
    total, left = 0, [os.fspath(path)]
    while left and total <= most:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
