"""Whether a compiled program keeps memory at each call that it does not give back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from dataclasses import replace
from functools import cache
from operator import sub
from typing import Any

from torchstone.conformance.execution.repeatability import Runnable, observe
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case

SUSPICIOUS = 1 << 20
"""Bytes that one call may leave the process larger by before that is looked into: pools and caches grow at first."""

CALLS = 6
"""Further calls that have to leave it larger, each by half of that or more, when what is free has been given back."""


def detect_leak(finding: Finding, case: Case, executable: Runnable) -> Finding:
    """Return the finding; a pass becomes a mismatch of kind ``leak`` where each call leaves the process larger.

    Calls the executable once, and several times more if that is suspicious; raises what it raises.
    """
    if finding.outcome is not Outcome.PASS or _growth(case, executable) < SUSPICIOUS:
        return finding
    now, grown = _after_trim(), []
    least = (sys.maxsize,) * len(now)
    for _ in range(CALLS):
        observe(executable, case.fresh_args())
        now, before = _after_trim(), now
        growth = tuple(map(sub, now, before))
        least = tuple(map(min, least, growth))
        grown.append(max(growth))
        if max(least) < SUSPICIOUS // 2:
            return finding
    message = f"each of {CALLS} calls on the same inputs leaves the process {max(least) / 2**20:.1f} MB larger or more"
    return replace(finding, outcome=Outcome.MISMATCH, kind=Kind.LEAK, message=message, evidence={"bytes": grown})


def _growth(case: Case, executable: Runnable) -> int:
    """How many bytes more the process has after a call, whose results are let go: at a glance.

    Before its arguments are let go, or after, whichever is more: what they were in may hide what the call kept.
    """
    start = _process_bytes()
    args = case.fresh_args()
    before = _process_bytes()
    observe(executable, args)
    after = _process_bytes()
    del args
    return max(*map(sub, after, before), *map(sub, _process_bytes(), start))


def _after_trim() -> tuple[int, int]:
    """Bytes that the process holds when all is given back that nobody uses.

    An allocator may keep a result's memory until its arguments' is free too, and give back both, at every call.
    """
    gc.collect()
    if trim := _libc_function("malloc_trim"):
        trim(ctypes.c_size_t(0))
    return _process_bytes()


def _process_bytes() -> tuple[int, int]:
    """Bytes of the process, and of those that the C library's allocator has given out.

    Both, as a leak out of memory that was freed before makes the process no larger, and what is not the C library's to
    give is not in its books.
    """
    return _resident(), _allocated()


def _resident() -> int:
    """Bytes of memory that the process has; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class _MallocInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def _libc_function(name: str) -> Any:
    """A function of the C library, None where it has none of that name."""
    try:
        return ctypes.CDLL(None)[name]
    except (AttributeError, OSError):
        return None


def _allocated() -> int:
    """Bytes that the C library's allocator has given and not got back; 0 where it does not tell."""
    tell = _libc_function("mallinfo2")
    if tell is None:
        return 0
    tell.restype = _MallocInfo
    books = tell()
    return books.uordblks + books.hblkhd
