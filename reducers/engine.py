"""The shrinking engine: an ordered tuple of passes, run to a fixed point under a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torchstone.reducers.problem import Pass, Problem

T = TypeVar("T")


class NotInteresting(ValueError):
    """The initial value does not show the property that is to be reduced."""


@dataclass(frozen=True)
class Budget:
    """How long a reduction may take. ``trials`` counts the distinct values asked about, ``seconds`` is wall time.

    A reduction bounded by ``trials`` alone is deterministic; one that ends on ``seconds`` is not.
    """

    trials: int = 2000
    seconds: float = float("inf")


@dataclass(frozen=True)
class Step:
    """An accepted candidate: the pass that proposed it, and its size."""

    name: str
    size: tuple


@dataclass(frozen=True)
class Reduced(Generic[T]):
    """The simplest value found. ``complete`` is true at a fixed point, false when the budget ended the search."""

    value: T
    trials: int
    steps: tuple[Step, ...]
    complete: bool


class _Spent(Exception):
    """The budget is spent."""


def reduce(
    problem: Problem[T],
    passes: Sequence[Pass[T]],
    budget: Budget | None = None,
    verdicts: MutableMapping[str, bool] | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Reduced[T]:
    """Shrink ``problem.initial`` until no pass can make it simpler.

    The result satisfies ``problem.interesting`` and is never larger than the start. ``verdicts`` remembers answers by
    content hash and may be shared between reductions of the same property: what it holds changes how long a reduction
    takes, never where it ends. Raises `NotInteresting` when the initial value lacks the property.
    """
    search = _Search(problem, budget or Budget(), {} if verdicts is None else verdicts, progress)
    if not search.ask(problem.initial):
        raise NotInteresting("the initial value does not show the property that is to be reduced")
    try:
        search.to_fixed_point(passes)
    except _Spent:
        return search.result(complete=False)
    return search.result(complete=True)


@dataclass
class _Search(Generic[T]):
    problem: Problem[T]
    budget: Budget
    verdicts: MutableMapping[str, bool]
    progress: Callable[[Step], None] | None
    tried: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.current = self.problem.initial
        self.size = self.problem.size(self.current)

    def result(self, complete: bool) -> Reduced[T]:
        return Reduced(self.current, len(self.tried), tuple(self.steps), complete)

    def ask(self, value: T) -> bool:
        key = self.problem.key(value)
        if key not in self.tried:
            # A verdict remembered from elsewhere costs as much of the budget as a new one: where a reduction stops
            # must not depend on what happened to be in the cache.
            spent = len(self.tried) >= self.budget.trials or time.monotonic() - self.started > self.budget.seconds
            if spent and self.tried:  # the start itself is always tried
                raise _Spent
            self.tried.add(key)
        if key not in self.verdicts:
            self.verdicts[key] = self.problem.valid(value) and self.problem.interesting(value)
        return self.verdicts[key]

    def propose(self, candidate: T, name: str) -> bool:
        size = self.problem.size(candidate)
        if not size < self.size or not self.ask(candidate):
            return False
        self.current, self.size = candidate, size
        self.steps.append(Step(name, size))
        if self.progress:
            self.progress(self.steps[-1])
        return True

    def to_fixed_point(self, passes: Sequence[Pass[T]]) -> None:
        barren: dict[str, tuple] = {}  # pass -> the size (hence the value) on which it last found nothing
        moved = True
        while moved:
            moved = False
            for row in passes:
                if barren.get(row.name) == self.size:
                    continue
                before = self.size
                self.run(row)
                moved |= self.size < before
                if self.size == before:
                    barren[row.name] = before

    def run(self, row: Pass[T]) -> None:
        candidates = row.run(self.current)
        answer: bool | None = None
        while True:
            try:
                candidate = next(candidates) if answer is None else candidates.send(answer)
            except StopIteration:
                return
            answer = self.propose(candidate, row.name)
