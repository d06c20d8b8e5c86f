"""A fork of this process that tells through a pipe what it finds, and the time that it has for it."""

from __future__ import annotations

import os
import resource
import warnings
from collections.abc import Callable


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Fork: the child does its ``work``, which writes to the descriptor it is given, and ends.

    Returns the child and the descriptor to read from. Who calls reads, closes it, and waits for the child.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which a fork has not: none of them holds what eager needs
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            work(writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def allow_processor_time(seconds: float) -> None:
    """Have the kernel end this process once it has used so much more of the processor's time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
