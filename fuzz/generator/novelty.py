"""What programs have had so far, so that the next one is drawn towards what none of them had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeAlias

import torch

Feature: TypeAlias = tuple[str, str, Hashable]
"""An op, a kind of fact about a call of it (``dtype``, ``rank``, ``layout``, ``after``, ``variant``), and the fact."""

TRIES = 3
"""How often something is drawn for one that is new: then the first is taken."""
CANDIDATES, GUIDED = 5, 60
"""Ops that are drawn, of which the one with most to be seen is taken, and for how many of a hundred calls."""
PATIENCE = 8
"""How often an op is tried with nothing to show for it before it is no better than others."""
WHOLE_PROGRAM = 4
"""For how many tries one counts that cost a program."""
DRY = 8
"""Programs in a row in which an op ran nothing new of the backend, after which it is as good as any other."""
UNSUPPORTED = 3
"""Refused programs that had an op, and none that was not refused, after which it is taken to be unsupported."""
STILL_DRAWN = 10
"""Of a hundred calls, how many are drawn from these ops, too: it may have been the others of the program."""
HOT_PROGRAMS = 40
"""For how many programs what was in a program of interest is drawn more often."""


class Novelty:
    """What programs had, which ops were tried, and what is *hot*: in a program that was of interest lately.

    ``variant`` is what the next program is asked in, ``dtype`` what most of its numbers have, where that is told.
    """

    def __init__(self) -> None:
        self.programs = 0
        self.variant = ""
        self.dtype: torch.dtype | None = None
        self._met: set[Feature] = set()
        self._tried: Counter[str] = Counter()
        self._had: Counter[str] = Counter()
        self._dry: Counter[str] = Counter()
        self._hot: dict[Hashable, int] = {}
        self._refused: Counter[str] = Counter()
        self._supported: set[str] = set()

    def is_new(self, feature: Feature) -> bool:
        """Whether no program had it."""
        return feature not in self._met

    def is_hot(self, what: Hashable) -> bool:
        """Whether an op, or a dtype, was in a program of interest lately."""
        return self._hot.get(what, -1) >= self.programs

    def hot_dtypes(self) -> list[torch.dtype]:
        """Return the dtypes that are hot."""
        return [what for what in self._hot if isinstance(what, torch.dtype) and self.is_hot(what)]

    def score(self, op: str, targets: Iterable[str | None], dtype: torch.dtype) -> int:
        """Return how much is to be seen of an op, which calls these, in a program of a dtype."""
        targets = [target for target in targets if target]
        if not self._had[op]:
            new = 3 if self._tried[op] < PATIENCE else 0
        else:
            new = int(self.is_new((op, "dtype", dtype)))
            new += any(self.is_new((target, "variant", self.variant)) for target in targets)
        return new + 2 * any(map(self.is_hot, targets)) + any(self._dry[target] < DRY for target in targets)

    def try_op(self, op: str) -> None:
        """Take note that a call of an op is drawn, whether or not it does."""
        self._tried[op] += 1

    def refuse(self, features: Iterable[Feature]) -> None:
        """Take note of what a program had that does not do."""
        self._tried.update(dict.fromkeys({op for op, _, _ in features}, WHOLE_PROGRAM))

    def keep(self, features: Iterable[Feature]) -> None:
        """Take note of what a program had."""
        features = set(features)
        self.programs += 1
        self._had.update({op for op, _, _ in features})
        self._met |= features

    def meet(self, features: Iterable[Feature]) -> None:
        """Take note of what the last program had besides."""
        self._met.update(features)

    def show(self, targets: Iterable[str], news: bool) -> None:
        """Take note of whether a program with calls of these ran something new of the backend."""
        for target in targets:
            self._dry[target] = 0 if news else self._dry[target] + 1

    def answer(self, targets: Iterable[str], refused: bool) -> None:
        """Take note of whether the backend refused a program with calls of these, or answered."""
        if refused:
            self._refused.update(set(targets) - self._supported)
        else:
            self._supported.update(targets)

    def is_unsupported(self, target: str) -> bool:
        """Whether the backend refused all programs with calls of it, and several."""
        return target not in self._supported and self._refused[target] >= UNSUPPORTED

    def heat(self, found: Iterable[Hashable]) -> None:
        """Draw these more often for a while."""
        self._hot.update(dict.fromkeys(found, self.programs + HOT_PROGRAMS))
