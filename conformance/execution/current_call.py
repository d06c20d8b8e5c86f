"""Which call of a case is being made: told as it goes, for a call that ends the process leaves no finding.

The facts are those that a finding of that call would have in its evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

Listener: TypeAlias = Callable[[Mapping[str, Any]], None]

_facts: dict[str, Any] = {}
_listener: list[Listener] = []


def listen(listener: Listener) -> None:
    """Have a function given the facts whenever they change: the last one that was told, and no other."""
    _listener[:] = [listener]


@contextmanager
def telling(facts: Mapping[str, Any]) -> Iterator[None]:
    """Within the block these facts hold, beside those of the blocks around it."""
    before = dict(_facts)
    _facts.update(facts)
    _tell()
    try:
        yield
    finally:
        _facts.clear()
        _facts.update(before)
        _tell()


def _tell() -> None:
    for listener in _listener:
        listener(_facts)
