"""Independent programs asked as one: where compiling takes most of the time, it is spent once for many of them.

A bundle that is right says that each of its programs is; of which the backend left a part to eager, ``left_to_eager``
tells. A program that gives something else is set aside, and asked by itself (``execution.set_aside``). Where it is not
known which one is to blame, each half is asked by itself, down to the program that it is about. So what is reported
never depends on which programs stood together.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from torchstone.conformance.execution.later_calls import OPTIMIZED_TURN, turn_of
from torchstone.conformance.execution.set_aside import ASIDE, member_at
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.program.bundle import bundle, may_be_member
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import keeps_graph
from torchstone.conformance.program.member_names import members_named
from torchstone.conformance.repro.place import failing_place, sharing_place
from torchstone.conformance.runner.retry import Trial, case_labels
from torchstone.conformance.variants.registry import bundle_of, is_run_as_it_is
from torchstone.fuzz.desk import R, Trying
from torchstone.fuzz.generator.generate import DRAWS, SIZES_OF_VALUES
from torchstone.fuzz.left_to_eager import LeftToEager, left_to_eager, verdict_of_one
from torchstone.reducers.asking import Ask, Asking

SIZES = (32, 16, 8, 4, 2, 1)
"""Programs in a bundle. More of them save little, and are taken apart more often."""
FIRST = 4
"""Programs in the first bundle of a kind, at most: how long they take, and how many are refused, is not known yet."""
SHARE = 2 / 3
"""Of the time limit of a case, what a bundle is to take at most: one that runs into the limit has told nothing."""
PATIENCE = 200
"""Programs drawn after one until it is asked with those that have come to stand with it so far."""


@dataclass(frozen=True)
class Kind:
    """What programs that are asked as one have in common: then each is asked all that it would be alone.

    ``turn`` are the later calls that are made of it (``execution.later_calls``), but that of optimized code, which few
    backends make: a bundle is asked that if its first program is. One that takes gradients is compiled
    in another way, and so is one that takes them more than once. Control flow and sizes that depend on values are what
    many compilers refuse: the others are not to be taken apart for it. Up to ``most`` are asked as one.
    """

    variant: str
    differentiates: bool
    keeps_graph: bool
    controls_flow: bool
    sizes_of_values: bool
    turn: int | None
    most: int

    @classmethod
    def of(cls, case: Case) -> Kind | None:
        """The kind of a program; None for one that stays alone.

        It draws random numbers, and others would change what it draws, or its variant asks one case by itself.
        """
        most = bundle_of(case) or SIZES[0]
        if DRAWS in case.tags or most == 1 or not may_be_member(case):
            return None
        variant = "" if is_run_as_it_is(case) else case.variant
        program = case.program
        controls_flow = any(call.bodies() for call in program.calls)
        measures = SIZES_OF_VALUES in case.tags
        turn = None if turn_of(case) == OPTIMIZED_TURN else turn_of(case)
        return cls(variant, program.differentiates, keeps_graph(program), controls_flow, measures, turn, most)

    @property
    def compiled_as(self) -> Hashable:
        """Programs for which this is one take about as long to compile, and are refused as often."""
        return self.variant, self.differentiates, self.controls_flow, self.sizes_of_values


class BundleSize:
    """How many programs to ask as one: as many as took the least time each so far, what was taken apart included.

    No more than are to be expected to end within a ``SHARE`` of the time limit, ``timeout`` in seconds.
    """

    def __init__(self, most: int = SIZES[0], timeout: float = 60.0) -> None:
        self._longest = SHARE * timeout
        self._sizes = [size for size in SIZES if size <= most]
        self._bundles: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._seconds: dict[int, float] = {}

    def best(self) -> int:
        """Return the size to ask next: the best of those known, or a smaller one where each of these was taken apart.

        One that was right as it stood says that a smaller one saves nothing, and that a larger one may.
        """
        if not self._bundles:
            return next(size for size in self._sizes if size <= FIRST)
        largest = max(self._bundles)
        most = self._sizes[0] if self._whole[largest] else largest
        sizes = [size for size in self._sizes if size <= most]
        in_time = [size for size in sizes if (self.seconds(size) or 0.0) <= self._longest] or sizes
        for size in in_time:
            if not self._bundles[size]:
                return size
            if self._whole[size]:
                break
        return min((size for size in in_time if self._bundles[size]), key=self._each)

    def learn(self, size: int, seconds: float, *, whole: bool = False) -> None:
        """Take note of what a bundle took, and whether it was asked as a whole and no more."""
        self._bundles[size] += 1
        self._whole[size] += whole
        self._seconds[size] = self._seconds.get(size, 0.0) + seconds

    def seconds(self, size: int) -> float | None:
        """Return about how long so many programs take, None where none were asked yet."""
        known = [each for each in self._sizes if self._bundles[each]]
        return size * self._each(min(known, key=lambda each: abs(each - size))) if known else None

    def _each(self, size: int) -> float:
        return self._seconds[size] / (self._bundles[size] * size)


@dataclass
class Bundler:
    """Programs that wait for others like them. ``timeout``: the seconds that a case, or a bundle, may take."""

    timeout: float = 60.0
    _sizes: dict[Hashable, BundleSize] = field(default_factory=dict)
    _waiting: dict[Kind, list[Case]] = field(default_factory=dict)

    def size(self, kind: Kind) -> BundleSize:
        """How many programs of a kind to ask as one: learned of all that are compiled in the same way."""
        return self._sizes.setdefault(kind.compiled_as, BundleSize(kind.most, self.timeout))

    def add(self, case: Case) -> Iterator[list[Case]]:
        """Take a program up, and yield what is to be asked now: programs to be asked as one."""
        kind = Kind.of(case)
        if kind is None:
            yield [case]
        else:
            self._waiting.setdefault(kind, []).append(case)
        for kind, group in list(self._waiting.items()):
            best = self.size(kind).best()
            if len(group) >= best or group[0].index + PATIENCE < case.index:
                yield group[:best]
                self._waiting[kind] = group[best:]
                if not self._waiting[kind]:
                    del self._waiting[kind]

    def seconds(self) -> float:
        """Return about how long it takes to ask what still waits; what was never asked is taken to be like the rest."""
        each = {kind: self.size(kind).seconds(len(group)) for kind, group in self._waiting.items()}
        known = [seconds for seconds in each.values() if seconds is not None]
        return sum(known) * len(each) / max(len(known), 1)

    def rest(self) -> Iterator[list[Case]]:
        """Yield what still waits."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))

    def learn(self, group: Sequence[Case], told: Told) -> None:
        """Take note of what became of programs that were asked as one."""
        if kind := Kind.of(group[0]):
            self.size(kind).learn(len(group), told.seconds, whole=told.whole)


@dataclass(frozen=True)
class Told:
    """The verdict of each program of a bundle, the seconds that all of it took, and how many trials it was."""

    verdicts: list[Verdict]
    seconds: float
    trials: int

    @property
    def whole(self) -> bool:
        """Whether none was asked again but those that are not right."""
        return self.trials - 1 <= sum(verdict.outcome not in CORRECT for verdict in self.verdicts)


def told_apart(cases: Sequence[Case], *, quick: bool = False) -> Trying[Told]:
    """What becomes of programs that are asked as one as long as that is right. ``quick``: as in ``Trial``."""
    taking = _apart(cases, lambda case, verdict: False, once=False, quick=quick)
    seconds, trials, verdict = 0.0, 0, None
    while True:
        try:
            trial = next(taking) if verdict is None else taking.send(verdict)
        except StopIteration as end:
            return Told(end.value, seconds, trials)
        verdict = yield trial
        seconds += verdict.seconds
        trials += 1


def trials(asking: Asking[R], *, together: bool) -> Trying[R]:
    """The trials of what asks for verdicts; ``together``: as one where that may be."""
    verdicts: list[Verdict] | None = None
    while True:
        try:
            ask = next(asking) if verdicts is None else asking.send(verdicts)
        except StopIteration as end:
            return end.value
        if together and not ask.fresh:
            verdicts = yield from _with_their_like(ask)
        else:
            verdicts = yield from _one_by_one(ask)


def _with_their_like(ask: Ask) -> Trying[list[Verdict]]:
    """Cases in their order, those as one that follow each other and are of one kind, if it is compiled once."""
    verdicts: list[Verdict] = []
    for kind, group in itertools.groupby(ask.cases, Kind.of):
        cases = list(group)
        parts = [cases] if kind and not kind.variant else [[case] for case in cases]
        for part in parts:
            verdicts += yield from _apart(part, ask.enough, once=True, quick=ask.quick)
            if ask.told(verdicts):
                return verdicts
    return verdicts


def _one_by_one(ask: Ask) -> Trying[list[Verdict]]:
    verdicts: list[Verdict] = []
    for case in ask.cases:
        verdicts.append((yield Trial(case, fresh=ask.fresh, once=not ask.fresh, quick=ask.quick)))
        if ask.told(verdicts):
            break
    return verdicts


def _apart(
    cases: Sequence[Case], enough: Callable[[Case, Verdict], bool], *, once: bool, quick: bool = False
) -> Trying[list[Verdict]]:
    """The verdicts of programs in their order, at least up to the first that is enough."""
    # Of a bundle that kills its worker no verdict is told: there is no need to see whether it does so again.
    verdict = yield Trial(bundle(cases), once=once or len(cases) > 1, quick=quick)
    if len(cases) == 1:
        return [verdict]
    wrong = _suspects(cases, verdict)
    evidence = {key: value for key, value in verdict.evidence.items() if key != ASIDE}
    verdict = dataclasses.replace(verdict, evidence=evidence)
    known = yield from _known(cases, verdict, wrong, enough, once=once, quick=quick)
    if wrong and not known:
        others = [at for at in range(len(cases)) if at not in wrong]
        again = (yield from _apart([cases[at] for at in others], enough, once=once, quick=quick)) if others else []
        known = dict(zip(others, again, strict=False))
    parts = [[at] for at in range(len(cases))] if wrong or known else _halves(len(cases))
    verdicts: list[Verdict] = []
    for part in parts:
        if part[0] in known:
            verdicts.append(known[part[0]])
        else:
            verdicts += yield from _apart([cases[at] for at in part], enough, once=once, quick=quick)
        if enough(cases[len(verdicts) - 1], verdicts[-1]):
            break
    return verdicts


def _halves(count: int) -> list[list[int]]:
    """The numbers of programs that are asked again as one where none is known to be wrong."""
    return [list(range(count // 2)), list(range(count // 2, count))]


def _known(
    cases: Sequence[Case],
    verdict: Verdict,
    wrong: Collection[int],
    enough: Callable[[Case, Verdict], bool],
    *,
    once: bool,
    quick: bool,
) -> Trying[dict[int, Verdict]]:
    """The verdicts of those programs of a bundle that it tells of: where the others are right, of all but the wrong."""
    if verdict.outcome is Outcome.FALLBACK and not once:
        left = left_to_eager(cases, verdict)
        if left is None or (left.open and not left.ran):
            return {}
        return (yield from _without(cases, verdict, left, wrong, enough, quick=quick))
    if verdict.outcome not in CORRECT:
        return {}
    share = verdict.seconds / len(cases)
    return {
        at: dataclasses.replace(verdict, **case_labels(case), seconds=share)
        for at, case in enumerate(cases)
        if at not in wrong
    }


def _without(
    cases: Sequence[Case],
    verdict: Verdict,
    left: LeftToEager,
    wrong: Collection[int],
    enough: Callable[[Case, Verdict], bool],
    *,
    quick: bool,
) -> Trying[dict[int, Verdict]]:
    """The verdicts of programs that are right, of some of which it is known that they were left in part to eager.

    Where something ran and it is not known for which of them, the others are asked again without these.
    """
    share = verdict.seconds / len(cases)
    right = [at for at in range(len(cases)) if at not in wrong]
    found = {at: verdict_of_one(cases[at], verdict, left.ran.get(at, ()), share) for at in right}
    others = [at for at in right if at not in left.ran]
    if left.open and others:
        again = yield from _apart([cases[at] for at in others], enough, once=False, quick=quick)
        found |= dict(zip(others, again, strict=False))
    return found


def _suspects(cases: Sequence[Case], verdict: Verdict) -> set[int]:
    """Which programs of a bundle are wrong, as far as its verdict says."""
    aside = {at for at in verdict.evidence.get(ASIDE, ()) if at < len(cases)}
    left = [at for at in range(len(cases)) if at not in aside]
    at = member_at([cases[at] for at in left], failing_place(verdict) or sharing_place(verdict.message))
    if at is not None:
        return aside | {left[at]}
    if aside or verdict.outcome not in (Outcome.ERROR, Outcome.UNSUPPORTED):
        return aside
    named = members_named(verdict.message)
    return named if len(named) == 1 and named < set(range(len(cases))) else set()
