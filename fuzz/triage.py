"""What becomes of failures: one after the other is explained by a known finding, or reduced, beside the stream.

Of those that wait the one that took the fewest seconds comes first: a reduction tries it again hundreds of times.
A mismatch by few runs of the oracle is a suspicion at first. While nothing is being reduced, as many of these are
judged in full as there are workers, first those that are furthest off: what is ill-conditioned is off by little. One
that is off by much and takes too long to judge is reduced as it is once nothing else waits: what that gives takes less.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.fuzz.bundles import trials
from torchstone.fuzz.desk import Desk
from torchstone.fuzz.findings import FuzzFinding
from torchstone.reducers.asking import Asking, verdict_of
from torchstone.reducers.engine import ONE_BY_ONE, Ahead, Budget
from torchstone.reducers.failure import reducing
from torchstone.reducers.message import PASSED_BEFORE
from torchstone.reducers.progress import Progress
from torchstone.reducers.script_run import RunningScript
from torchstone.reducers.signature import signature
from torchstone.reducers.write import CASE, SUMMARY, start_script, write_reduction, write_script_run

if TYPE_CHECKING:
    from torchstone.fuzz.campaign import CampaignOptions, Tally

NOT_REDUCED = frozenset({Outcome.FLAKY, Outcome.HARNESS_ERROR})
"""Failures that do not come back on demand."""

MOST_AHEAD = 8
"""Trials of a reduction that are asked as one, at most."""

GRACE = 15.0
"""Seconds after the end of a campaign in which what is being reduced may become simpler still, and is confirmed."""

CONFIRMING = 10.0
"""Seconds of these that are for the verdict in a fresh worker and the run of the script."""

MUCH = -1
"""The power of ten by which a suspicion is off that is worth a reduction though it could not be judged."""

_Waiting: TypeAlias = tuple[Case, Verdict, Callable[[], None]]
_Key: TypeAlias = tuple[int, ...]


class Triage:
    """The failures of a campaign: those that wait, the one that is worked on, and the scripts that are confirmed.

    ``together``: trials that may be are asked as one. ``quick``: failures come from quick trials, so that a mismatch is
    to be judged in full before it is taken for one.
    """

    def __init__(self, plan: CampaignOptions, tally: Tally, desk: Desk, *, together: bool, quick: bool = False) -> None:
        self._plan, self._tally, self._desk = plan, tally, desk
        self._together, self._quick = together, quick
        self._waiting: list[tuple[_Key, _Waiting]] = []  # a heap
        self._suspected: list[tuple[_Key, _Waiting]] = []  # another: mismatches that are to be judged in full
        self._judging: list[Case] = []
        self._unjudged: list[tuple[_Key, _Waiting]] = []  # one more: those that took too long to judge
        self._arrivals = itertools.count()
        self._busy = False
        self._case: Case | None = None  # what was sorted last
        self._sorting: Case | None = None  # the same, as long as it is being sorted and is no finding yet
        self._finding: FuzzFinding | None = None  # the one that is being reduced
        self._so_far: Case | None = None  # the simplest case of it
        self._not_told_apart: list[Case] = []  # those that are left to a campaign that goes on
        self._scripts: deque[FuzzFinding] = deque()
        self._running: tuple[FuzzFinding, RunningScript] | None = None

    def __len__(self) -> int:
        """How many failures have not been sorted yet."""
        waiting = len(self._suspected) + len(self._judging) + len(self._unjudged) + len(self._waiting)
        return waiting + self._busy

    def add(self, case: Case, verdict: Verdict, done: Callable[[], None] = lambda: None) -> None:
        """Take up a failure; ``done`` is called once it belongs to a finding, or was found to be none."""
        if self._quick and verdict.outcome is Outcome.MISMATCH:
            heapq.heappush(self._suspected, (self._furthest_first(verdict), (case, verdict, done)))
        else:
            self._wait(case, verdict, done, verdict.seconds)
        self._next()

    def _furthest_first(self, verdict: Verdict) -> _Key:
        return (-how_far_off(verdict), round(verdict.seconds), next(self._arrivals))

    def _wait(self, case: Case, verdict: Verdict, done: Callable[[], None], seconds: float) -> None:
        # Whole seconds: among quick ones the order is that of arrival, which does not hang on the machine.
        heapq.heappush(self._waiting, ((round(seconds), next(self._arrivals)), (case, verdict, done)))

    def _next(self) -> None:
        while self._waiting and not self._busy:
            self._begin(heapq.heappop(self._waiting)[1])
        while self._suspected and not self._busy and len(self._judging) < self._desk.jobs:
            self._judge(*heapq.heappop(self._suspected)[1])
        if self._unjudged and not (self._busy or self._judging):
            self._begin(heapq.heappop(self._unjudged)[1], judged=False)

    def _begin(self, waiting: _Waiting, *, judged: bool = True) -> None:
        case, verdict, done = waiting
        self._busy = True

        def sorted_(left: bool | None) -> None:
            self._busy = False
            if not left:
                done()
            self._next()

        self._desk.drive(trials(self._sort(case, verdict, judged=judged), together=self._together), sorted_)

    def _judge(self, case: Case, first: Verdict, done: Callable[[], None]) -> None:
        """Judge a suspicion in full: what fails then waits to be sorted."""
        self._judging.append(case)

        def judged(verdict: Verdict) -> None:
            self._judging.remove(case)
            if verdict.outcome is Outcome.UNTESTED and how_far_off(first) >= MUCH:
                heapq.heappush(self._unjudged, (self._furthest_first(first), (case, first, done)))
                self._next()
                return
            self._tally.recount(first, verdict)
            if verdict.failed:
                self._wait(case, verdict, done, first.seconds)
            else:
                done()
            self._next()

        self._desk.drive(trials(verdict_of(case), together=self._together), judged)

    def _sort(self, case: Case, verdict: Verdict, *, judged: bool = True) -> Asking[bool]:
        """Reduce a failure that no known finding explains, and say whether it is left unsorted all the same.

        One that is not ``judged`` in full may come to nothing.
        """
        tally, self._case, self._sorting, self._so_far = self._tally, case, case, None
        rest = yield from tally.findings.unexplained(case, verdict)
        if rest is None:
            self._sorting = None
            return False
        finding = FuzzFinding(signature(verdict), rest, verdict, seen=[case.id])
        if judged:
            self._sorting, self._finding = None, finding
        refused = verdict if verdict.outcome is Outcome.UNSUPPORTED else None
        known = verdict if rest is case and verdict.outcome is Outcome.MISMATCH else refused
        if verdict.outcome not in NOT_REDUCED:
            tally.reducing = str(finding.signature)
            left = max(self._plan.seconds + GRACE - CONFIRMING - tally.seconds, 0.0)
            try:
                finding.reduction = yield from reducing(
                    rest,
                    self._plan.backend,
                    budget=Budget(seconds=min(self._plan.seconds_of_one, left)),
                    verdict=known,
                    ahead=Ahead(1, MOST_AHEAD) if self._together else ONE_BY_ONE,
                    keep=self._simpler,
                    again=judged,
                )
            except InputError as error:
                finding.verdict = _unstable(verdict, str(error))
            if not judged and not (finding.reduction and finding.reduction.confirmed):
                self._sorting, tally.reducing = None, ""
                tally.recount(verdict, replace(verdict, outcome=Outcome.UNTESTED))
                return False
            self._sorting, self._finding = None, finding
            if finding.reduction and refused:
                finding.reduction = replace(finding.reduction, verdict=refused_now(finding.reduction.verdict))
            elif finding.reduction and tally.seconds < self._plan.seconds:
                yield from tally.findings.explain(finding, list(reversed(tally.right)))
        return not self.keep()

    def _simpler(self, case: Case) -> None:
        self._so_far = case

    def leave(self) -> list[Case]:
        """End at once: the finding at hand is taken up as it is now. Return the failures that are not sorted."""
        self.keep()
        left = [*self._not_told_apart, *([] if self._sorting is None else [self._sorting])]
        left += [case for _, (case, _, _) in sorted(self._waiting)]
        left += self._judging
        left += [case for heap in (self._suspected, self._unjudged) for _, (case, _, _) in sorted(heap)]
        self._waiting.clear()
        self._unjudged.clear()
        self._suspected.clear()
        self._judging.clear()
        self._sorting = None
        return left

    def keep(self) -> bool:
        """Take up the finding at hand as it is now, if there is one, and write it down unless it is known.

        ``torchstone reduce`` goes on with a reduction that has not ended. Where nothing has been taken away yet, and
        another finding fails alike, the two may be one: false, and the failure is left unsorted.
        """
        finding, self._finding = self._finding, None
        self._tally.reducing = ""
        if finding is None:
            return True
        if self._so_far is None and finding.is_whole and self._tally.findings.has_alike(finding):
            assert self._case is not None
            self._not_told_apart.append(self._case)
            return False
        if self._tally.findings.add(finding) is not finding:
            return True
        finding.folder = self._plan.out / finding.name
        if finding.reduction:
            write_reduction(finding.reduction, finding.folder)
            self._scripts.append(finding)
        else:
            finding.folder.mkdir(parents=True, exist_ok=True)
            finding.case.save(finding.folder / CASE)
            if self._so_far is not None:
                Progress(finding.folder, finding.case, self._plan.backend).write(self._so_far)
            told = json.dumps(finding.to_json(), indent=2)
            (finding.folder / SUMMARY).write_text(told + "\n", encoding="utf-8")
        return True

    def tick(self) -> bool:
        """See to the scripts, of which one runs at a time, in a process of its own; whether there is more to do."""
        if self._running is not None:
            finding, script = self._running
            if (ran := script.poll()) is None:
                return True
            self._running = None
            finding.script = ran
            assert finding.reduction is not None and finding.folder is not None
            write_script_run(finding.reduction, finding.folder, ran)
        if not self._scripts:
            return False
        finding = self._scripts.popleft()
        assert finding.reduction is not None and finding.folder is not None
        self._running = finding, start_script(finding.reduction, finding.folder, self._plan.python)
        return True

    def close(self) -> None:
        """End the script that runs."""
        if self._running is not None:
            self._running[1].kill()


def how_far_off(verdict: Verdict) -> int:
    """Return the power of ten by which a mismatch's worst element is off, absolutely and relatively, at most 0.

    It is 0 as well where a NaN or an infinity is wrong, or no number.
    """
    error, relative = verdict.evidence.get("error"), verdict.evidence.get("relative")
    if not isinstance(error, float) or not isinstance(relative, float):
        return 0
    return min(math.floor(math.log10(max(min(error, relative), 5e-324))), 0)


def refused_now(verdict: Verdict) -> Verdict:
    """Return a refusal that says why it is a failure."""
    return replace(verdict, message=verdict.message + PASSED_BEFORE)


def _unstable(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, outcome=Outcome.FLAKY, message=f"{verdict.message} (not reduced: {why})")
