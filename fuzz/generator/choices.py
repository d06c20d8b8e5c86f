"""Where a generator's decisions come from: a seeded stream, or Hypothesis, which can then drive and shrink them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Choices(ABC):
    """A sequence of bounded integers, and the decisions made from them.

    Every decision is one `integer`, arranged so that smaller is simpler: a shrinker that lowers the integers simplifies
    the program.
    """

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """Return an integer in ``low..high``, both included."""

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options, which stand simplest first."""
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        """Return true ``percent`` times in a hundred; false is the simpler answer."""
        return self.integer(0, 99) >= 100 - percent

    def weighted(self, options: Sequence[tuple[T, int]]) -> T:
        """Return one of the (option, weight) pairs' options, which stand simplest first."""
        at = self.integer(0, sum(weight for _, weight in options) - 1)
        for option, weight in options:
            if at < weight:
                return option
            at -= weight
        raise AssertionError("unreachable: the weights add up")

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """Return the options in another order; all-zero choices keep the order as it is."""
        left = list(options)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(len(left))]


class SeededChoices(Choices):
    """Choices determined by a text, the same on every machine and in every Python from 3.11 on."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class DrawnChoices(Choices):
    """Choices drawn from Hypothesis: ``draw`` is a composite strategy's function or a data object's method."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        from hypothesis import strategies

        self._draw = draw
        self._integers = strategies.integers

    def integer(self, low: int, high: int) -> int:
        return self._draw(self._integers(low, high))


class ReplayedChoices(Choices):
    """Choices read from a list, as after a failure; past its end the simplest choice is made."""

    def __init__(self, integers: Sequence[int]) -> None:
        self._left = list(reversed(integers))

    def integer(self, low: int, high: int) -> int:
        return min(max(self._left.pop(), low), high) if self._left else low
