"""The shrinking engine: an ordered tuple of passes, run to a fixed point under a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from torchstone.reducers.problem import Pass, Problem

T = TypeVar("T")
R = TypeVar("R")
Searching: TypeAlias = Generator[tuple[T, ...], list[bool], R]
"""Yields values, is sent for each whether it is interesting, at least up to the first that is, and returns a result."""


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
class Ahead:
    """How many candidates are asked about at once: ``least`` after one that was accepted, and twice as many after each
    such group of which none was, up to ``most``.
    """

    least: int = 1
    most: int = 1


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


ONE_BY_ONE = Ahead()


def reduce(
    problem: Problem[T],
    passes: Sequence[Pass[T]],
    budget: Budget | None = None,
    verdicts: MutableMapping[str, bool] | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Reduced[T]:
    """Shrink ``problem.initial`` until no pass can make it simpler, asking one candidate after the other.

    The result satisfies ``problem.interesting`` and is never larger than the start. ``verdicts`` remembers answers by
    content hash and may be shared between reductions of the same property: what it holds changes how long a reduction
    takes, never where it ends. Raises `NotInteresting` when the initial value lacks the property.
    """
    searching = search(problem, passes, budget, verdicts, progress)
    answers: list[bool] | None = None
    while True:
        try:
            asked = next(searching) if answers is None else searching.send(answers)
        except StopIteration as end:
            return end.value
        answers = [problem.interesting(value) for value in asked]


def search(
    problem: Problem[T],
    passes: Sequence[Pass[T]],
    budget: Budget | None = None,
    verdicts: MutableMapping[str, bool] | None = None,
    progress: Callable[[Step], None] | None = None,
    keep: Callable[[T], None] | None = None,
    ahead: Ahead = ONE_BY_ONE,
) -> Searching[T, Reduced[T]]:
    """What ``reduce`` does, for who can answer several at once: it yields values, and is sent which are interesting.

    Answers after the first true one may be left out. ``keep`` is given each value that is accepted. How far it looks
    ahead changes how long it takes, never where it ends: what was asked beyond one that is accepted does not count.
    """
    known = {} if verdicts is None else verdicts
    return _Search(problem, budget or Budget(), known, progress, keep, ahead).run(passes)


@dataclass
class _Search(Generic[T]):
    problem: Problem[T]
    budget: Budget
    verdicts: MutableMapping[str, bool]
    progress: Callable[[Step], None] | None
    keep: Callable[[T], None] | None
    ahead: Ahead
    tried: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.current = self.problem.initial
        self.size = self.problem.size(self.current)
        self.width = self.ahead.least

    def run(self, passes: Sequence[Pass[T]]) -> Searching[T, Reduced[T]]:
        initial = _Candidate(self.current, self.problem.key(self.current), self.size)
        yield from self.answer([initial])
        self.tried.add(initial.key)
        if not self.verdicts[initial.key]:
            raise NotInteresting("the initial value does not show the property that is to be reduced")
        try:
            yield from self.to_fixed_point(passes)
        except _Spent:
            return self.result(complete=False)
        return self.result(complete=True)

    def result(self, complete: bool) -> Reduced[T]:
        return Reduced(self.current, len(self.tried), tuple(self.steps), complete)

    def to_fixed_point(self, passes: Sequence[Pass[T]]) -> Searching[T, None]:
        barren: dict[str, Any] = {}  # pass -> the size (hence the value) on which it last found nothing
        moved = True
        while moved:
            moved = False
            for row in passes:
                if barren.get(row.name) == self.size:
                    continue
                before = self.size
                yield from self.run_pass(row)
                moved |= self.size < before
                if self.size == before:
                    barren[row.name] = before

    def run_pass(self, row: Pass[T]) -> Searching[T, None]:
        """Take some candidates ahead, as if each were refused; the pass goes on after the first that is accepted."""
        running = _Running(row, self.current)
        while group := self.take(running):
            yield from self.answer(group)
            accepted = next((at for at, candidate in enumerate(group) if self.accepts(candidate, row.name)), None)
            if accepted is None:
                if any(candidate.key for candidate in group):
                    self.width = min(2 * self.width, self.ahead.most)
                continue
            self.width = self.ahead.least
            key = group[accepted].key
            if not running.accept(len(group) - 1 - accepted, lambda value, key=key: self.problem.key(value) == key):
                return

    def take(self, running: _Running[T]) -> list[_Candidate[T]]:
        """The next candidates: so many of unknown answer, or up to one that is known to be interesting."""
        group: list[_Candidate[T]] = []
        most = max(1, min(self.width, self.budget.trials - len(self.tried)))
        unknown: set[str] = set()
        while len(unknown) < most and (found := running.advance()):
            (value,) = found
            size = self.problem.size(value)
            key = self.problem.key(value) if size < self.size else ""
            group.append(_Candidate(value, key, size))
            if self.verdicts.get(key):
                break
            if key and key not in self.verdicts:
                unknown.add(key)
        return group

    def answer(self, group: Sequence[_Candidate[T]]) -> Searching[T, None]:
        """Have the answers known of those that could be accepted, up to the first that can."""
        if self.spent() and self.tried:  # the start itself is always tried
            return
        asked: dict[str, T] = {}
        for key, value in {one.key: one.value for one in group if one.key and one.key not in self.verdicts}.items():
            if self.problem.valid(value):
                asked[key] = value
            else:
                self.verdicts[key] = False
        if asked:
            answers = yield tuple(asked.values())
            self.verdicts.update(zip(asked, answers, strict=False))

    def spent(self) -> bool:
        return len(self.tried) >= self.budget.trials or time.monotonic() - self.started > self.budget.seconds

    def accepts(self, candidate: _Candidate[T], name: str) -> bool:
        if not candidate.key:  # not simpler
            return False
        if candidate.key not in self.tried:
            # A verdict remembered from elsewhere costs as much of the budget as a new one: where a reduction stops
            # must not depend on what happened to be in the cache.
            if self.spent() or candidate.key not in self.verdicts:
                raise _Spent
            self.tried.add(candidate.key)
        if not self.verdicts[candidate.key]:
            return False
        self.current, self.size = candidate.value, candidate.size
        self.steps.append(Step(name, candidate.size))
        if self.keep:
            self.keep(self.current)
        if self.progress:
            self.progress(self.steps[-1])
        return True


@dataclass(frozen=True)
class _Candidate(Generic[T]):
    """A value to be tried, with its key, which is empty where it is not simpler."""

    value: T
    key: str
    size: Any


class _Running(Generic[T]):
    """A pass at work, which can go back to an earlier candidate: it is run again, and given the same answers."""

    def __init__(self, row: Pass[T], start: T) -> None:
        self._row, self._start = row, start
        self._rewrite = row.run(start)
        self._answers: list[bool] = []  # to each candidate that was given out
        self._given = 0

    def advance(self) -> tuple[T] | None:
        """Return the next candidate; the last one is refused unless it was accepted. None at the end."""
        try:
            if not self._given:
                value = next(self._rewrite)
            else:
                if len(self._answers) < self._given:
                    self._answers.append(False)
                value = self._rewrite.send(self._answers[-1])
        except StopIteration:
            return None
        self._given += 1
        return (value,)

    def accept(self, back: int, is_it: Callable[[T], bool]) -> bool:
        """Accept the candidate so many before the last, and go on from there.

        False where the pass, run again, does not come to the same value, as one that draws random numbers may not.
        """
        last = self._given - 1 - back
        if back or len(self._answers) == self._given:
            answers, self._answers, self._given = self._answers[:last], [], 0
            self._rewrite = self._row.run(self._start)
            found = self.advance()
            for answer in answers:
                if found:
                    self._answers.append(answer)
                    found = self.advance()
            if not found or not is_it(found[0]):
                return False
        self._answers.append(True)
        return True
