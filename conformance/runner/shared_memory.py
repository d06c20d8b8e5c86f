"""Shared memory, which outlives the process that made it: found by that process's number, and removed after it.

PyTorch and OpenMP have the number in their names, Python is given names that do, and the kernel keeps it for System V's
segments. A name that a library thinks of by itself tells of nobody and stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Collection
from multiprocessing import shared_memory
from pathlib import Path

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
