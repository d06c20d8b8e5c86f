"""What a compiler's native code prints: it knows nothing of ``sys.stderr``, its words go to file descriptor 2.

They are asked for after a failure, by doing the same again: a process that dies inside has then printed to the real
descriptor, where the runner reads its last words.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

LIMIT = 4000


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Collect the lines printed to descriptor 2 inside, of the first ``LIMIT`` bytes; the list is filled at the end."""
    said: list[str] = []
    sys.stderr.flush()
    real = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield said
            finally:
                sys.stderr.flush()
                os.dup2(real, 2)
                file.seek(0)
                said += file.read(LIMIT).decode(errors="replace").splitlines()
    finally:
        os.close(real)


def stderr_of_failure(action: Any, *args: Any) -> list[str]:
    """What an action that fails prints; whatever it raises is dropped."""
    with captured_stderr() as said, suppress(Exception):
        action(*args)
    return said
