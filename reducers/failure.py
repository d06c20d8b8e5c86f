"""Reducing a failing case: the property that is kept, the search, and the confirmation in a fresh worker."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.later_calls import first_call_of, shows_at_first_call
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro.place import failing_place
from torchstone.conformance.repro.script import render_script
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import Trial
from torchstone.reducers import engine, order
from torchstone.reducers.asking import Ask, Asking, Judge, answered, verdict_of
from torchstone.reducers.bodies import bodies_agree
from torchstone.reducers.edit import has_special_values, tidy
from torchstone.reducers.engine import Budget, Step
from torchstone.reducers.keywords import Keywords, essential_keywords, kept
from torchstone.reducers.lineage import Lineage
from torchstone.reducers.passes import PARTS, passes
from torchstone.reducers.problem import Pass, Problem
from torchstone.reducers.signature import Signature, signature

R = TypeVar("R")
AHEAD_OF_EACH = 4
"""Trials of a reduction that are made before it is known whether they are needed, for each worker, at most."""
LARGE = 1 << 16
"""Elements of the inputs from which on a trial is taken for a slow one."""


@dataclass(frozen=True)
class Reduction:
    """A reduced failure. ``verdict`` is the reduced case's own; ``confirmed``: a fresh worker failed the same way.

    ``complete`` is false when the budget ended the search before nothing more could be taken away. ``blame`` is the
    stage that the failure comes from, where that is known, and ``texts`` the program ``before`` and ``after`` it, each
    with the name of what it is.
    """

    case: Case
    original: Case
    backend: str
    signature: Signature
    verdict: Verdict
    steps: tuple[Step, ...]
    trials: int
    seconds: float
    complete: bool
    confirmed: bool
    blame: str = ""
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def script(self) -> str:
        """A standalone script that shows the failure."""
        return render_script(self.case, self.backend, self.verdict)


def reduce_case(
    case: Case,
    backend: str,
    *,
    budget: Budget | None = None,
    timeout: float = 60.0,
    python: str | None = None,
    jobs: int = 1,
    pool: Pool | None = None,
    judge: Judge | None = None,
    confirm: Judge | None = None,
    verdict: Verdict | None = None,
    progress: Callable[[Step], None] | None = None,
    so_far: Case | None = None,
    keep: Callable[[Case], None] | None = None,
) -> Reduction:
    """Shrink a case that fails on a backend to the simplest one that fails in the same way.

    Cases are tried in ``jobs`` isolated workers, or those of ``pool``, and the result in a fresh one, unless ``judge``
    and ``confirm`` try them. ``verdict`` is the case's own, if known. ``python`` is the interpreter that the backend
    runs in, this one if None. ``keep`` is given each simpler case as it is found, and ``so_far`` the last of an earlier
    reduction, from which this one goes on if it fails as the case does.
    Raises InputError when the case does not fail, or not twice in the same way.
    """
    jobs = pool.jobs if pool else jobs
    most = AHEAD_OF_EACH * jobs if jobs > 1 else 1
    asking = reducing(
        case, backend, budget=budget, verdict=verdict, progress=progress, so_far=so_far, keep=keep,
        ahead=engine.Ahead(jobs, most),
    )  # fmt: skip
    if judge is not None:
        return answered(asking, judge, confirm)
    with contextlib.ExitStack() as stack:
        if pool is None:
            pool = stack.enter_context(Pool(backend, python=python, jobs=jobs, timeout=timeout))
        return _in_parallel(asking, pool)


def _in_parallel(asking: Asking[Reduction], pool: Pool) -> Reduction:
    """Drive a reduction with what a pool's workers say of several cases at once."""
    verdicts: list[Verdict] | None = None
    while True:
        try:
            ask = next(asking) if verdicts is None else asking.send(verdicts)
        except StopIteration as end:
            return end.value
        places = {id(case): at for at, case in enumerate(ask.cases)}
        found: dict[int, Verdict] = {}
        verdicts = []
        trials = (Trial(case, fresh=ask.fresh, once=not ask.fresh, quick=ask.quick) for case in ask.cases)
        for result in pool.results(trials):
            found[places[id(result.case)]] = result.verdict
            while len(verdicts) in found and not (verdicts and ask.told(verdicts)):
                verdicts.append(found[len(verdicts)])
            if ask.told(verdicts):
                break


def reducing(
    case: Case,
    backend: str,
    *,
    budget: Budget | None = None,
    verdict: Verdict | None = None,
    progress: Callable[[Step], None] | None = None,
    so_far: Case | None = None,
    keep: Callable[[Case], None] | None = None,
    ahead: engine.Ahead = engine.ONE_BY_ONE,
    again: bool = True,
) -> Asking[Reduction]:
    """What ``reduce_case`` does, asking for the verdicts it needs.

    ``verdict`` may be that of a case which passed once and is refused now. Such a one is reduced to a part of itself
    alone: of anything else it is not known whether the backend ever took it.

    Trials of a wrong number are judged quickly, since to tell a mismatch from an ill-conditioned number takes longer
    than all else; so is the first, where the verdict is known. What comes of them is judged in full: if it is no such
    failure, all is done again in full, unless ``again`` is false.
    """
    started = time.monotonic()
    quickly = verdict is not None and verdict.outcome is Outcome.MISMATCH
    first = yield from verdict_of(tidy(case), quick=quickly)
    target = signature(verdict or first)
    if quickly and (signature(first) != target or failing_place(first) != failing_place(verdict or first)):
        first = yield from verdict_of(tidy(case))
    if first.outcome in CORRECT:
        raise InputError(f"{case.id} passes on {backend}: there is nothing to reduce")
    refused = first.outcome is Outcome.UNSUPPORTED
    if first.outcome is Outcome.ILL_CONDITIONED or (refused and verdict is None):
        raise InputError(f"{case.id} is {first.outcome} on {backend}, which is no failure: {first.message}")
    if signature(first) != target or first.outcome in (Outcome.FLAKY, Outcome.UNTESTED, Outcome.HARNESS_ERROR):
        raise InputError(f"{case.id} does not fail on {backend} in a stable way: {target}, then {signature(first)}")
    property_ = CaseProperty.of(case, first)
    if not refused:
        keywords = yield from essential_keywords(property_.initial, property_.may_go)
        property_ = dataclasses.replace(property_, keywords=keywords)
    rows = [row for row in _passes(case) if not refused or row.name in PARTS]
    if so_far is not None and (yield from property_.survives(so_far)):
        property_ = dataclasses.replace(property_, initial=so_far)
    budget = budget or Budget()
    rounds = (True, False) if first.outcome is Outcome.MISMATCH else (False,)
    for quick in rounds if again else rounds[:1]:
        left = dataclasses.replace(budget, seconds=max(budget.seconds - (time.monotonic() - started), 0.0))
        search = engine.search(property_.problem(), rows, left, None, progress, keep, ahead)
        try:
            found = yield from property_.asked(search, quick=quick)
        except engine.NotInteresting as error:
            raise InputError(f"{case.id} does not fail on {backend} in a stable way: {target} at first") from error
        last = yield from verdict_of(found.value, fresh=True)
        if property_.fails(found.value, last):
            break
    return Reduction(
        case=found.value,
        original=case,
        backend=backend,
        signature=target,
        verdict=last,
        steps=found.steps,
        trials=found.trials,
        seconds=time.monotonic() - started,
        complete=found.complete,
        confirmed=property_.fails(found.value, last),
    )


def _passes(case: Case) -> tuple[Pass[Case], ...]:
    """The passes for a case. Of a large one the sizes go first: that makes every trial after it a quick one."""
    rows = passes()
    if sum(tensor.numel() for tensor in case.args) <= LARGE:
        return rows
    return (*(row for row in rows if row.name == "shrink-dims"), *rows)


@dataclass(frozen=True)
class CaseProperty:
    """What survives a reduction: a case fails as the ``initial`` one does, in the same place, with its keywords."""

    initial: Case
    target: Signature
    lineage: Lineage
    first_call: bool
    had_special: bool | None
    had_empty: bool
    bodies_agreed: bool
    keywords: Keywords = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, verdict: Verdict) -> CaseProperty:
        """Return that of a case whose verdict is this one."""
        initial = tidy(case)
        had_empty = any(tensor.numel() == 0 for tensor in initial.args)
        return cls(
            initial,
            signature(verdict),
            Lineage.of(initial, verdict),
            shows_at_first_call(verdict),
            has_special_values(initial),
            had_empty,
            bodies_agree(initial),
        )

    def valid(self, candidate: Case) -> bool:
        """Whether eager takes it, with all bodies of control flow. Infinities and empty tensors are provinces of their
        own, with their own bugs: a reduction that starts outside does not wander in.
        """
        if not self.had_empty and any(tensor.numel() == 0 for tensor in candidate.args):
            return False
        if not kept(self.keywords, candidate) or (self.bodies_agreed and not bodies_agree(candidate)):
            return False
        has_special = has_special_values(candidate)
        return has_special is not None and (self.had_special is not False or not has_special)

    def fails(self, candidate: Case, verdict: Verdict) -> bool:
        """Whether this verdict of a case is the failure."""
        return signature(verdict) == self.target and self.lineage.holds(candidate, verdict)

    def survives(self, candidate: Case) -> Asking[bool]:
        """Whether a case has the property."""
        if not self.valid(candidate):
            return False
        verdict = yield from verdict_of(self.trial(candidate))
        return self.fails(candidate, verdict)

    def trial(self, candidate: Case) -> Case:
        """What is asked of a candidate: no later calls where the failure is one of the first."""
        return first_call_of(candidate) if self.first_call else candidate

    def may_go(self, candidates: Sequence[Case]) -> Asking[list[bool]]:
        """Of each: whether what was left out of the initial case is not what it fails of, or eager needs it."""
        asked = [at for at, candidate in enumerate(candidates) if self.valid(candidate)]
        gone = [True] * len(candidates)
        if asked:
            verdicts = yield Ask(tuple(self.trial(candidates[at]) for at in asked), quick=True)
            for at, verdict in zip(asked, verdicts, strict=True):
                gone[at] = self.fails(candidates[at], verdict)
        return gone

    def problem(self) -> Problem[Case]:
        """What is to be reduced, for ``search``: it is told which cases fail."""
        return Problem(self.initial, _asked_for, order.size, lambda candidate: candidate.to_bytes(), self.valid)

    def asked(self, search: engine.Searching[Case, R], *, quick: bool = False) -> Asking[R]:
        """Ask for the verdicts that a search needs."""
        answers: list[bool] | None = None
        while True:
            try:
                values = next(search) if answers is None else search.send(answers)
            except StopIteration as end:
                return end.value
            verdicts = yield Ask(tuple(map(self.trial, values)), self.fails, quick=quick)
            answers = [self.fails(value, verdict) for value, verdict in zip(values, verdicts, strict=False)]


def _asked_for(candidate: Case) -> bool:
    raise AssertionError("a search is told the answers")


def case_problem(case: Case, verdict: Verdict, judge: Judge) -> Problem[Case]:
    """Return what is to be reduced, for ``engine.reduce``: the case in so far as it fails as the verdict says."""
    found = CaseProperty.of(case, verdict)
    keywords = answered(essential_keywords(found.initial, found.may_go), judge)
    found = dataclasses.replace(found, keywords=keywords)
    return dataclasses.replace(found.problem(), interesting=lambda candidate: found.fails(candidate, judge(candidate)))
