"""Work that needs verdicts as it goes, as a generator: who drives it decides where cases are tried, and beside what.

A reduction driven by ``torchstone reduce`` waits for its trials. A campaign drives one beside the programs that it
tries, and asks many of its trials as one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case

R = TypeVar("R")
Judge: TypeAlias = Callable[[Case], Verdict]


@dataclass(frozen=True)
class Ask:
    """Cases whose verdicts are wanted, in order. Those after the first that is ``enough`` need not be told.

    ``fresh``: each in a worker that has tried nothing before. ``quick``: judged by few runs of the oracle, so that a
    mismatch may be ill-conditioned.
    """

    cases: tuple[Case, ...]
    enough: Callable[[Case, Verdict], bool] = lambda case, verdict: False
    fresh: bool = False
    quick: bool = False

    def told(self, verdicts: list[Verdict]) -> bool:
        """Whether no more verdicts are needed than these."""
        at = len(verdicts) - 1
        return len(verdicts) == len(self.cases) or (at >= 0 and self.enough(self.cases[at], verdicts[at]))


Asking: TypeAlias = Generator[Ask, list[Verdict], R]
"""Yields what it asks, is sent the verdicts, and returns what it came to."""


def verdict_of(case: Case, *, fresh: bool = False, quick: bool = False) -> Asking[Verdict]:
    """Ask for one verdict."""
    (verdict,) = yield Ask((case,), fresh=fresh, quick=quick)
    return verdict


def answered(asking: Asking[R], judge: Judge, confirm: Judge | None = None) -> R:
    """Drive it to its end with one verdict after the other; ``confirm`` tries what is to be tried in a fresh worker."""
    verdicts: list[Verdict] | None = None
    while True:
        try:
            ask = next(asking) if verdicts is None else asking.send(verdicts)
        except StopIteration as end:
            return end.value
        verdicts = []
        for case in ask.cases:
            verdicts.append((confirm or judge)(case) if ask.fresh else judge(case))
            if ask.told(verdicts):
                break
