"""Which cases before it, in its worker, a failing case needs to fail: found by delta debugging, in fresh workers.

A worker tries many cases. What one leaves behind in the process may be what another fails of; alone that one passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import replay_command
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.sources import find_case

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case
    from torchstone.conformance.runner.retry import CaseResult

AFTER, REPLAY, SEARCH = "after", "replay", "search"
"""The keys in the evidence: the cases before, the command that makes them fail again, and what the search lacks."""

RUNS, CASES = 200, 2000
"""What the searches of one backend may take together: sequences of cases that are tried, and cases in these. No time:
what a search finds decides verdicts, and these are the same on a slow machine."""

TryAll = Callable[[Sequence["Case"]], Verdict | None]
"""Try cases one by one in a fresh worker: the verdict of the last; None where the worker did not live to it."""


@dataclass
class Budget:
    """What the searches may still take, and how often they have asked."""

    runs: int = RUNS
    cases: int = CASES

    def left(self) -> bool:
        """Whether another sequence may be tried."""
        return self.runs > 0 and self.cases > 0

    def spend(self, cases: int) -> None:
        """Take what a sequence of so many cases costs."""
        self.runs -= 1
        self.cases -= cases


class Suspects(dict[tuple[str, str, str], "CaseResult"]):
    """Failing cases that had others before them: of one op, outcome and kind the first."""

    def add(self, result: CaseResult) -> None:
        """Keep the result, if it is one."""
        first = result.first or result.verdict
        if result.before and first.outcome is not Outcome.HARNESS_ERROR:
            self.setdefault((first.op, str(first.outcome), first.kind), result)


def explain(
    suspects: Iterable[CaseResult], try_all: TryAll, note: Callable[[str], None], budget: Budget | None = None
) -> Iterator[tuple[CaseResult, Verdict]]:
    """The verdicts of failing cases that need cases before them, with these in the evidence.

    ``note`` is told how a search goes on.
    """
    budget = budget or Budget()
    for result in suspects:
        if not budget.left():
            return
        first = result.first or result.verdict
        budget.spend(1)
        alone = try_all([result.case])
        if alone is not None and not _same(alone, first):
            yield result, _search(result, first, alone, try_all, note, budget)


def _same(verdict: Verdict, wanted: Verdict) -> bool:
    return (verdict.outcome, verdict.kind) == (wanted.outcome, wanted.kind)


def _search(
    result: CaseResult,
    first: Verdict,
    alone: Verdict,
    try_all: TryAll,
    note: Callable[[str], None],
    budget: Budget,
) -> Verdict:
    """The verdict of a case that fails in another way, or not at all, when it is alone."""
    note(f"{first.case_id}: {first.outcome}, and {alone.outcome} alone: looking for the cases before it that matter")
    before, lacking = _remade(result.before)

    known: dict[tuple[str, ...], bool] = {}

    def fails(cases: Sequence[Case]) -> bool:
        key = tuple(case.id for case in cases)
        if key not in known:
            budget.spend(len(cases) + 1)
            found = try_all([*cases, result.case])
            known[key] = found is not None and _same(found, first)
        return known[key]

    needed = _fewest_last(before, fails, budget)
    if needed is None:
        needed, problem = before[-3:], f"it does not fail again after the {len(before)} cases before it, one by one"
        problem += f"; {lacking} of them could not be made again" if lacking else ""
    else:
        needed = minimal(needed, fails, budget.left)
        problem = "" if budget.left() else "stopped by its bound: fewer cases may do"
    names = [case.id for case in needed]
    note(f"{first.case_id}: after {', '.join(names)}" if not problem else f"{first.case_id}: {problem}")
    options = [word for name in names for word in ("--after", name)]
    evidence = first.evidence | {AFTER: names, "retry": {"outcome": str(alone.outcome), "message": alone.message}}
    evidence |= {SEARCH: problem} if problem else {}
    evidence |= {REPLAY: replay_command(first.case_id, first.backend, *options)}
    message = (
        f"{first.outcome} after {', '.join(names)} ({first.message}), then {alone.outcome} alone in a fresh worker"
    )
    return replace(first, outcome=Outcome.FLAKY, kind="", message=message, evidence=evidence)


def _remade(names: Sequence[str]) -> tuple[list[Case], int]:
    """The cases of these ids, and how many cannot be made again: those of a campaign, for one."""
    found: list[Case] = []
    for name in names:
        try:
            found.append(find_case(name))
        except InputError:
            continue
    return found, len(names) - len(found)


def _fewest_last(before: list[Case], fails: Callable[[Sequence[Case]], bool], budget: Budget) -> list[Case] | None:
    """The last cases after which it fails, twice as many each time; None where all of them are not enough."""
    count = 1
    while budget.left():
        if fails(before[-count:]):
            return before[-count:]
        if count >= len(before):
            return None
        count *= 2
    return None


def minimal(
    items: list[Case], fails: Callable[[Sequence[Case]], bool], go_on: Callable[[], bool] = lambda: True
) -> list[Case]:
    """Items of a list that fails, none of which can be left out: parts are, half of it at first, then smaller ones."""
    size = max(1, len(items) // 2)
    while True:
        at, before = 0, len(items)
        while at < len(items) and go_on():
            rest = items[:at] + items[at + size :]
            if rest and fails(rest):
                items = rest
            else:
                at += size
        if not go_on() or (size == 1 and len(items) == before):
            return items
        size = max(1, size // 2)
