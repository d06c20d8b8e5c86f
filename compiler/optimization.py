"""Whether code is to be optimized at once, as ``compile(..., optimize=True)`` wants it, however long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_AT_ONCE = ContextVar("_AT_ONCE", default=False)


@contextmanager
def optimizing(at_once: bool) -> Iterator[None]:
    """Have what is compiled in here optimized ``at_once``, as that is which does much work or was called often."""
    token = _AT_ONCE.set(at_once)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def at_once() -> bool:
    """Whether what is compiled now is to be optimized at once."""
    return _AT_ONCE.get()
