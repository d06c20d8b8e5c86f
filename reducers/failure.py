"""Reducing a failing case: the predicate, the search, and the confirmation in a fresh worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro.script import render_script
from torchstone.conformance.runner.pool import Pool
from torchstone.reducers import engine, order
from torchstone.reducers.edit import has_special_values, tidy
from torchstone.reducers.engine import Budget, Step
from torchstone.reducers.keywords import essential_keywords, kept
from torchstone.reducers.lineage import Lineage
from torchstone.reducers.passes import passes
from torchstone.reducers.problem import Problem
from torchstone.reducers.signature import Signature, signature

Judge = Callable[[Case], Verdict]


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
    judge: Judge | None = None,
    confirm: Judge | None = None,
    verdict: Verdict | None = None,
    verdicts: MutableMapping[str, bool] | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Reduction:
    """Shrink a case that fails on a backend to the simplest one that fails in the same way.

    Cases are tried in an isolated worker, and the result in a fresh one, unless ``judge`` and ``confirm`` try
    them. ``verdict`` is the case's own, if known.
    ``python`` is the interpreter that the backend runs in, this one if None.
    Raises InputError when the case does not fail, or not twice in the same way.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if judge is None:
            judge = stack.enter_context(Pool(backend, python=python, jobs=1, timeout=timeout, retry=False)).verdict
        first = judge(tidy(case))
        target = signature(verdict or first)
        if first.outcome in CORRECT:
            raise InputError(f"{case.id} passes on {backend}: there is nothing to reduce")
        if first.outcome in (Outcome.UNSUPPORTED, Outcome.ILL_CONDITIONED):
            raise InputError(f"{case.id} is {first.outcome} on {backend}, which is no failure: {first.message}")
        if signature(first) != target or first.outcome in (Outcome.FLAKY, Outcome.UNTESTED, Outcome.HARNESS_ERROR):
            raise InputError(f"{case.id} does not fail on {backend} in a stable way: {target}, then {signature(first)}")
        try:
            found = engine.reduce(case_problem(case, first, judge), passes(), budget, verdicts, progress)
        except engine.NotInteresting as error:
            raise InputError(f"{case.id} does not fail on {backend} in a stable way: {target} at first") from error
        if confirm is None:
            confirm = stack.enter_context(Pool(backend, python=python, jobs=1, timeout=timeout)).verdict
        last = confirm(found.value)
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
        confirmed=signature(last) == target and Lineage.of(tidy(case), first).holds(found.value, last),
    )


def case_problem(case: Case, verdict: Verdict, judge: Judge) -> Problem[Case]:
    """Return what is to be reduced: the case in so far as it fails as the verdict says, in the same place."""
    initial = tidy(case)
    target, lineage = signature(verdict), Lineage.of(initial, verdict)
    had_special = has_special_values(initial)
    had_empty = any(tensor.numel() == 0 for tensor in initial.args)

    def valid(candidate: Case) -> bool:
        # Eager decides what a valid program is. Infinities and empty tensors are provinces of their own, with their own
        # bugs: a reduction that starts outside does not wander in.
        if not had_empty and any(tensor.numel() == 0 for tensor in candidate.args):
            return False
        has_special = has_special_values(candidate)
        return has_special is not None and (had_special is not False or not has_special)

    def fails(candidate: Case) -> bool:
        its = judge(candidate)
        return signature(its) == target and lineage.holds(candidate, its)

    keywords = essential_keywords(initial, lambda candidate: not valid(candidate) or fails(candidate))
    return Problem(
        initial=initial,
        interesting=lambda candidate: kept(keywords, candidate) and fails(candidate),
        size=order.size,
        content=lambda candidate: candidate.to_bytes(),
        valid=valid,
    )
