"""Poisoned memory: what nobody wrote to is filled with a known byte, so that a backend that reads it is found out.

The allocator of the GNU C library fills what it hands out with one byte, and what is given back with another
(``mallopt(M_PERTURB)``). PyTorch's CPU tensors and most runtimes' buffers come from it. Where the C library is
another, or the runtime keeps an allocator of its own, nothing is filled, and only luck finds such a read.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator

_M_PERTURB = -6
FILL, OTHER_FILL = 0x01, 0x80
"""What freed memory is filled with; fresh memory gets the complement: -1.7e38 and 3.4e38 as float32. Two runs under
the two of them differ wherever they read it."""


@functools.cache
def _mallopt() -> Callable[[int, int], int] | None:
    try:
        return ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return None


@contextlib.contextmanager
def poisoned_memory(byte: int) -> Iterator[None]:
    """Run what is inside it with fresh and freed memory filled by ``byte``: one of ``HUGE`` and ``HUGER``."""
    mallopt = _mallopt()
    if mallopt is None:
        yield
        return
    mallopt(_M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
