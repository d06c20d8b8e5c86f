"""What a reduction is about: a value, the property that must survive, and which of two values is the simpler one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

Rewrite = Generator[T, bool, None]
"""A running pass: it yields candidates and is sent, for each, whether it became the current value."""


@dataclass(frozen=True)
class Problem(Generic[T]):
    """A value to shrink.

    ``interesting`` says whether a value still shows what is being reduced. It may be expensive and need not be
    monotone, and must answer the same for the same value. ``size`` is a total order without infinite descents: tuples
    of numbers and short-lex strings, ending in the content itself, so that two different values never compare equal.
    ``content`` is the value as bytes; verdicts are remembered by its hash. ``valid`` is a cheap check made before
    ``interesting``.
    """

    initial: T
    interesting: Callable[[T], bool]
    size: Callable[[T], tuple]
    content: Callable[[T], bytes]
    valid: Callable[[T], bool] = lambda value: True

    def key(self, value: T) -> str:
        """Return the hash under which the verdict on ``value`` is remembered."""
        return hashlib.sha256(self.content(value)).hexdigest()


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One shrinking idea.

    ``run(value)`` yields candidates made from the current value. When it is sent true, its candidate has become the
    current value and it goes on from there. It is finite, and depends on nothing but ``value`` and the answers.
    """

    name: str
    run: Callable[[T], Rewrite[T]]


def remove_chunks(count: int, without: Callable[[frozenset[int]], T | None]) -> Generator[T, bool, frozenset[int]]:
    """Leave out chunks of ``count`` things, all at first, then halves; return the numbers of those that stay.

    ``without`` makes a candidate that has these alone, or none.
    """
    kept = list(range(count))
    chunk = count
    while chunk:
        at = len(kept)
        while at > 0:  # from the end: what comes last depends on the rest
            rest = kept[: max(at - chunk, 0)] + kept[at:]
            candidate = without(frozenset(rest))
            if candidate is not None and (yield candidate):
                kept = rest
            at -= chunk
        chunk //= 2
    return frozenset(kept)
