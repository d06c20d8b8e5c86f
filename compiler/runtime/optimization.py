"""Whether kernels are to be optimized at once, as ``compile(..., optimize=True)`` wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_AT_ONCE = ContextVar("_AT_ONCE", default=False)


@contextmanager
def optimizing(at_once: bool) -> Iterator[None]:
    """Have the kernels made in here optimized ``at_once``, as those are that do much work or were called often."""
    token = _AT_ONCE.set(at_once)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def at_once() -> bool:
    """Whether a kernel that is made now is to be optimized at once."""
    return _AT_ONCE.get()
