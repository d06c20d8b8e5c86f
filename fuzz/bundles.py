"""Independent programs asked as one: where compiling takes most of the time, it is spent once for many of them.

A bundle that is right says that each of its programs is. Of any other, each half is asked by itself, down to the
program that it is about, so that what is reported never depends on which programs stood together. Where the verdict
names a result, the program that it is of is asked first.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from torchstone.conformance.execution.verdict import CORRECT, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Program
from torchstone.conformance.repro.place import failing_place
from torchstone.conformance.runner.retry import Trial, case_labels
from torchstone.conformance.variants import dynamic
from torchstone.conformance.variants.registry import is_run_as_it_is
from torchstone.fuzz.desk import R, Trying
from torchstone.fuzz.generator.generate import DRAWS
from torchstone.reducers.asking import Ask, Asking

SIZES = (1, 4, 16)
"""Programs in a bundle. More of them save little, and are taken apart more often."""
LEAST = 2
"""Bundles of a size before its time is taken for typical."""
MOST_VARYING = 8
"""Programs in a bundle that is compiled for any size: each call with another size may compile all of it again."""
PATIENCE = 100
"""Programs drawn after one until it is asked with those that have come to stand with it so far."""


class BundleSize:
    """How many programs to ask as one: as many as took the least time each so far, what was taken apart included."""

    def __init__(self) -> None:
        self._asked: Counter[int] = Counter()
        self._bundles: Counter[int] = Counter()
        self._seconds: dict[int, float] = {}

    def best(self) -> int:
        """Return the size to ask next: one that was hardly asked yet, or the best of those that are known."""
        for size in SIZES:
            if self._asked[size] < LEAST:
                return size
        return min((size for size in SIZES if self._bundles[size]), key=self._each, default=SIZES[-1])

    def ask(self, size: int) -> None:
        """Take note that a bundle is being asked."""
        self._asked[size] += 1

    def learn(self, size: int, seconds: float) -> None:
        """Take note of what a bundle took."""
        self._bundles[size] += 1
        self._seconds[size] = self._seconds.get(size, 0.0) + seconds

    def _each(self, size: int) -> float:
        return self._seconds[size] / (self._bundles[size] * size)


@dataclass
class Bundler:
    """Programs that wait for others like them."""

    size: BundleSize = field(default_factory=BundleSize)
    _waiting: dict[Hashable, list[Case]] = field(default_factory=dict)

    def add(self, case: Case) -> Iterator[list[Case]]:
        """Take a program up, and yield what is to be asked now: programs to be asked as one."""
        key = _kind(case)
        if key is None:
            yield [case]
        else:
            self._waiting.setdefault(key, []).append(case)
        for kind, group in list(self._waiting.items()):
            best = self.size.best()
            if len(group) >= (min(best, MOST_VARYING) if kind else best) or group[0].index + PATIENCE < case.index:
                yield self._waiting.pop(kind)

    def rest(self) -> Iterator[list[Case]]:
        """Yield what still waits."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))


def _kind(case: Case) -> Hashable | None:
    """What programs that are asked as one have in common: nothing, or which sizes they are called with.

    None for one that stays alone: it draws random numbers, and others would change what it draws, or its variant
    compiles or calls it in another way.
    """
    if DRAWS in case.tags:
        return None
    if is_run_as_it_is(case):
        return ()
    if case.variant not in (dynamic.DYNAMIC, dynamic.BATCH):
        return None
    planned = dynamic.plan(case)
    if planned is None:
        return None
    rows = next((tensor.shape[0] for tensor in case.args if tensor.dim()), 0) if case.variant == dynamic.BATCH else 0
    return (case.variant, rows, len(planned.others), len(planned.small), case.program.differentiates)


def may_be_one(cases: Sequence[Case]) -> bool:
    """Whether programs that a bundle was made of are all asked what each would be: eager takes all of its sizes."""
    kind = _kind(cases[0])
    return len(cases) == 1 or kind == () or _kind(bundle(cases)) == kind


def told_apart(cases: Sequence[Case]) -> Trying[tuple[list[Verdict], float]]:
    """The verdict of each program, asked as one as long as that is right; and the seconds that all of it took."""
    taking = _apart(cases, lambda case, verdict: False, once=False)
    seconds, verdict = 0.0, None
    while True:
        try:
            trial = next(taking) if verdict is None else taking.send(verdict)
        except StopIteration as end:
            return end.value, seconds
        verdict = yield trial
        seconds += verdict.seconds


def trials(asking: Asking[R], *, together: bool) -> Trying[R]:
    """The trials of what asks for verdicts; ``together``: as one where that may be."""
    verdicts: list[Verdict] | None = None
    while True:
        try:
            ask = next(asking) if verdicts is None else asking.send(verdicts)
        except StopIteration as end:
            return end.value
        if together and not ask.fresh and all(_kind(case) == () for case in ask.cases):
            verdicts = yield from _apart(ask.cases, ask.enough, once=True)
        else:
            verdicts = yield from _one_by_one(ask)


def _one_by_one(ask: Ask) -> Trying[list[Verdict]]:
    verdicts: list[Verdict] = []
    for case in ask.cases:
        verdicts.append((yield Trial(case, fresh=ask.fresh, once=not ask.fresh)))
        if ask.told(verdicts):
            break
    return verdicts


def _apart(cases: Sequence[Case], enough: Callable[[Case, Verdict], bool], *, once: bool) -> Trying[list[Verdict]]:
    """The verdicts of programs in their order, at least up to the first that is enough."""
    verdict = yield Trial(bundle(cases), once=once)
    if len(cases) == 1:
        return [verdict]
    if verdict.outcome in CORRECT:
        share = verdict.seconds / len(cases)
        return [dataclasses.replace(verdict, **case_labels(case), seconds=share) for case in cases]
    at = _suspect(cases, verdict)
    half = len(cases) // 2
    parts = (cases[:half], cases[half:]) if at is None else (cases[:at], cases[at : at + 1], cases[at + 1 :])
    verdicts: list[Verdict] = []
    for part in parts:
        if part:
            verdicts += yield from _apart(part, enough, once=once)
            if enough(cases[len(verdicts) - 1], verdicts[-1]):
                break
    return verdicts


def _suspect(cases: Sequence[Case], verdict: Verdict) -> int | None:
    """Which program of a bundle the result is of that a verdict names, if it names one."""
    place = failing_place(verdict)
    if place is None or not place.path or not isinstance(place.path[0], int):
        return None
    if place.side == "output":
        return place.path[0] if place.path[0] < len(cases) else None
    ends = itertools.accumulate(len(case.program.inputs) for case in cases)
    return next((at for at, end in enumerate(ends) if place.path[0] < end), None)


def bundle(cases: Sequence[Case]) -> Case:
    """Return one program that does what each of them does, on the inputs of all; a single one is itself."""
    if len(cases) == 1:
        return cases[0]
    inputs, calls, outputs = {}, [], []
    for number, case in enumerate(cases):
        names = [*case.program.inputs, *(call.result for call in case.program.calls)]
        program = case.program.rename({name: f"p{number}_{name}" for name in names})
        inputs |= dict(zip(program.inputs, case.inputs.values(), strict=True))
        calls += program.calls
        outputs.append(program.outputs)
    first = cases[0]
    tags = tuple(dict.fromkeys(itertools.chain.from_iterable(case.tags for case in cases)))
    program = Program(tuple(inputs), tuple(calls), outputs)
    return first.replace(program=program, inputs=inputs, op=f"{len(cases)}-programs", tags=tags)
