"""Whether a compiled program keeps memory at each call that it does not give back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from torchstone.conformance.again import Run, observe
from torchstone.conformance.case import Case
from torchstone.conformance.oracle.judge import Finding
from torchstone.conformance.verdict import Kind, Outcome

SUSPICIOUS = 1 << 20
"""Bytes that one call may leave the process larger by before that is looked into: pools and caches grow at first."""

CALLS = 6
"""Further calls that have to leave it larger, each by half of that or more. An allocator that keeps what is freed uses
it again in the next call of the same program on inputs of the same sizes."""


def leaking(finding: Finding, case: Case, executable: Run) -> Finding:
    """Return the finding; a pass is a mismatch of kind ``leak`` where each call leaves the process larger.

    Calls the executable once, and several times more if that is suspicious; raises what it raises.
    """
    if finding.outcome is not Outcome.PASS or _growth(case, executable) < SUSPICIOUS:
        return finding
    gc.collect()
    grown = []
    for _ in range(CALLS):
        grown.append(_growth(case, executable, gc.collect))
        if grown[-1] < SUSPICIOUS // 2:
            return finding
    message = f"each of {CALLS} calls on the same inputs leaves the process {min(grown) / 2**20:.1f} MB larger or more"
    return replace(finding, outcome=Outcome.MISMATCH, kind=Kind.LEAK, message=message, evidence={"bytes": grown})


def _growth(case: Case, executable: Run, tidy: Callable[[], object] = int) -> int:
    """How many bytes more the process has after a call, whose results are let go.

    The larger of two answers: a leak out of memory that was freed before makes the process no larger, and what is not
    the C library's to give is not in its books.
    """
    args = case.fresh_args()
    before = _resident(), _allocated()
    observe(executable, args)
    tidy()
    return max(_resident() - before[0], _allocated() - before[1])


def _resident() -> int:
    """Bytes of memory that the process has; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class _Books(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def _books() -> Callable[[], _Books] | None:
    try:
        tell = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    tell.restype = _Books
    return tell


def _allocated() -> int:
    """Bytes that the C library's allocator has given and not got back; 0 where it does not tell."""
    tell = _books()
    if tell is None:
        return 0
    books = tell()
    return books.uordblks + books.hblkhd
