"""What dead processes leave behind, and how it is removed: temporary folders and shared memory.

A pool's folder is locked for as long as its process lives, and the kernel releases the lock when it dies. So a folder
that can be locked belongs to nobody, and the next pool to start removes it.

Shared memory outlives the process that made it. It is found by that process's number: PyTorch and OpenMP have it in
their names, Python is told to use names that have it, and the kernel records it for segments of System V. A name that a
library makes up by itself says nothing of its process and stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Collection, Iterator
from multiprocessing import shared_memory
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


FOLDER = Path("/dev/shm")
SEGMENTS = Path("/proc/sysvipc/shm")
IPC_RMID = 0


def use_process_names(pid: int) -> None:
    """Let the blocks that Python makes from here on, in this process and its forks, be named after a process."""
    if hasattr(shared_memory, "_SHM_NAME_PREFIX"):
        shared_memory._SHM_NAME_PREFIX = f"/t{pid:x}_"  # type: ignore[attr-defined]  # of fourteen characters in all


def remove_shared_memory(pids: Collection[int]) -> None:
    """Remove what these processes, which are dead, have left."""
    if not pids:
        return
    numbers = "|".join(map(str, pids))
    python = "|".join(f"t{pid:x}_[0-9a-f]+" for pid in pids)
    ours = re.compile(rf"torch_({numbers})_.*|__KMP_REGISTERED_LIB_({numbers})_\d+|{python}")
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                os.unlink(entry.path)
    with contextlib.suppress(OSError, ValueError, KeyError):
        names, *rows = (line.split() for line in SEGMENTS.read_text().splitlines())
        for row in (dict(zip(names, map(int, row), strict=True)) for row in rows):
            if row["cpid"] in pids and row["uid"] == os.getuid():
                ctypes.CDLL(None).shmctl(row["shmid"], IPC_RMID, None)


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Let an impatient second Ctrl-C not leave half the workers alive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
