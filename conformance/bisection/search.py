"""The search: the rungs of a backend from the frontend on, then the parts of the first that shows the failure."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.conformance.backends.registry import load
from torchstone.conformance.bisection import exported, inductor, ours
from torchstone.conformance.bisection.rungs import Rung
from torchstone.conformance.custom.apart import Died, Made, Steps, stream
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.same_failure import same_failure
from torchstone.conformance.execution.verdict import FAILURES, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case


@dataclass(frozen=True)
class Tried:
    """What became of the case on a rung or a part; ``shows`` says whether it is the failure, None if nothing can."""

    name: str
    what: str
    verdict: Verdict
    shows: bool | None


@dataclass(frozen=True)
class Blame:
    """Where a failure comes from.

    ``stage`` is the first that shows it, and ``parts`` are those of it that do. It may be one of ``or_else`` instead:
    the stages just before it, which nothing here can run. ``stage`` is empty where the case neither fails nor is
    refused, and ``verdict`` says what it does.
    """

    verdict: Verdict
    stage: str = ""
    parts: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    or_else: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the stage and its parts in a line."""
        parts = f": {', '.join(self.parts)}" if self.parts else ""
        return f"{self.stage}{parts}" + (f" (or {', '.join(self.or_else)}, not tried)" if self.or_else else "")


def bisect(case: Case, backend: str, seconds: float = 60.0, say: Callable[[Tried], None] = lambda tried: None) -> Blame:
    """Find the stage of a backend that a case fails in, or is refused by.

    Each trial runs in a fork of this process, for ``seconds`` at most; ``say`` is told of each. Raises ``InputError``
    for a backend whose stages are not known.
    """
    rungs = known_rungs(backend)
    trials = _Trials(case, seconds, say)
    whole = trials.verdict(rungs[-1].backend)
    if whole.outcome not in (*FAILURES, Outcome.UNSUPPORTED):
        return Blame(whole)
    trials.failure = whole
    if whole.outcome is Outcome.UNSUPPORTED:
        rungs = known_rungs(backend, refused=True)
    before = whole
    for rung in rungs[:-1]:
        if trials.shows(rung.stage, rung.what, rung.backend):
            return _in_parts(rung, before, trials)
        before = trials.tried[-1].verdict
    trials.note(Tried(rungs[-1].stage, rungs[-1].what, whole, True))
    return _in_parts(rungs[-1], before, trials)


def known_rungs(backend: str, refused: bool = False) -> Sequence[Rung]:
    """Return the rungs of a backend for a case that fails, or is ``refused``.

    Raises ``InputError`` for a backend whose stages are not known.
    """
    loaded = load(backend)
    if found := ours.rungs(loaded, refused) or inductor.rungs(loaded) or exported.rungs(loaded):
        return found
    raise InputError(
        f'the stages of backend "{backend}" are not known: bisect knows torchstone\'s own targets, inductor, and '
        "backends that begin with torch.export"
    )


def _in_parts(rung: Rung, before: Verdict, trials: _Trials) -> Blame:
    assert trials.failure is not None
    before_it = reversed(trials.tried[:-1])
    unknown = [tried.name for tried in itertools.takewhile(lambda tried: tried.shows is None, before_it)]
    guilty = []
    for part in rung.parts(before):
        shows = trials.shows(part.name, str(part), part.backend)
        if shows is not None and shows != part.without:
            guilty.append(part.name)
            if part.shared:
                break
    if rung.found is not None and (name := trials.named(rung.found, rung.backend)):
        guilty.append(name)
    return Blame(trials.failure, rung.stage, tuple(guilty), tuple(trials.tried), tuple(reversed(unknown)))


def _lacks_kernel(verdict: Verdict) -> bool:
    """Whether PyTorch has no kernel for a dtype: it says nothing of the program that an interpreter runs by them."""
    return verdict.message.startswith(NotImplementedError.__name__)


class _Trials:
    def __init__(self, case: Case, seconds: float, say: Callable[[Tried], None]) -> None:
        self.case, self.seconds, self.say = case, seconds, say
        self.failure: Verdict | None = None
        self.tried: list[Tried] = []

    def note(self, tried: Tried) -> None:
        self.tried.append(tried)
        self.say(tried)

    def shows(self, name: str, what: str, backend: Callable[[], Any]) -> bool | None:
        """Say whether the failure shows on a backend; None for one that cannot run the case, or fails otherwise."""
        assert self.failure is not None
        verdict = self.verdict(backend)
        shows = same_failure(verdict, self.failure) and _lacks_kernel(verdict) == _lacks_kernel(self.failure)
        if not shows and verdict.outcome in (*FAILURES, Outcome.UNSUPPORTED, Outcome.UNTESTED):
            shows = None
        self.note(Tried(name, what, verdict, shows))
        return shows

    def named(self, found: Callable[[Callable[[], bool]], str], backend: Callable[[], Any]) -> str:
        """Let a compiler's own search name the part, in a fork; nothing where it ends without a word."""

        def make(steps: Steps) -> Iterator[Made]:
            failure = self.failure
            assert failure is not None
            if steps.begin("the search"):
                yield Made("part", found(lambda: not same_failure(run_case(self.case, backend()), failure)))

        return next((made.told for made in stream(make, 20 * self.seconds) if isinstance(made, Made)), "")

    def verdict(self, backend: Callable[[], Any]) -> Verdict:
        """Try the case on a backend, in a fork."""

        def make(steps: Steps) -> Iterator[Made]:
            if steps.begin("the trial"):
                yield Made("verdict", run_case(self.case, backend()).to_json())

        began = time.monotonic()
        for found in stream(make, self.seconds):
            if isinstance(found, Made):
                return Verdict.from_json(found.told)
            return self._died(found, time.monotonic() - began)
        raise AssertionError("a trial that ends says how")

    def _died(self, found: Died, took: float) -> Verdict:
        outcome = Outcome.TIMEOUT if took >= self.seconds else Outcome.CRASH
        case, how = self.case, f"the process was {found.how}"
        return Verdict(case.id, "", case.source, case.op, case.dtype, case.variant, Stage.RUN, outcome, "", how)
