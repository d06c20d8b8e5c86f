"""How many workers the machine can take: its cores, and its memory, by what this process may have of them.

And whether it has run out of memory all the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def fitting_jobs(memory: int, root: Path = Path("/")) -> int:
    """Return how many workers fit, one at least: one a core, and of ``memory`` bytes each.

    Both are the least of what the machine has, what the process is bound to, and what its control groups grant.
    """
    return max(1, min(cores(root), available_memory(root) // memory))


def cores(root: Path = Path("/")) -> int:
    """Return the cores this process may use: those it is bound to, or the quota of its control groups if it is less."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = []
    for group in _groups(root, "cpu"):
        words = _read(group / "cpu.max").split()  # version 2: quota and period, or "max"
        if len(words) != 2:
            words = [_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        with contextlib.suppress(ValueError):
            if int(words[0]) > 0:
                quotas.append(int(words[0]) // int(words[1]))
    return max(1, min([bound, *quotas]))


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes that processes can still take without swapping, by the system and by the control groups."""
    free = [1 << 62]
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free.append(int(line.split()[1]) << 10)
    for group in _groups(root, "memory"):
        for most, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(ValueError):
                limit, taken = int(_read(group / most)), int(_read(group / used))
                statistics = dict(line.split() for line in _read(group / "memory.stat").splitlines())
                free.append(limit - taken + int(statistics.get(cache, 0)))
    return max(0, min(free))


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the system has killed for want of memory since it started; 0 where it does not tell."""
    lines = _read(root / "proc/vmstat").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the process's control groups, from its own to the topmost, in version 2 and version 1."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        parts = [part for part in place.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def format_bytes(count: int) -> str:
    """Return a number of bytes for people: ``300 MiB``, ``8.0 GiB``."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def over_limit(used: int, limit: int) -> str:
    """Say that so many bytes are over a limit: ``9.1 GiB is over the limit of 8.0 GiB``."""
    return f"{format_bytes(used)} is over the limit of {format_bytes(limit)}"
