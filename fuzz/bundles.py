"""Independent programs asked as one: where compiling takes most of the time, it is spent once for many of them.

A bundle that is right says that each of its programs is. Of any other, each half is asked by itself, down to the
program that it is about, so that what is reported never depends on which programs stood together.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from torchstone.conformance.execution.verdict import CORRECT, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Program
from torchstone.conformance.runner.retry import case_labels
from torchstone.conformance.runner.run import Workers
from torchstone.conformance.variants.registry import compiled_alone, is_run_as_it_is
from torchstone.fuzz.generator.generate import DRAWS

SIZES = (1, 2, 4, 8, 16)
"""Programs in a bundle. More of them save little, and are taken apart more often."""
LEAST = 3
"""Bundles of a size before its time is taken for typical."""


class BundleSize:
    """How many programs to ask as one: as many as took the least time each so far, what was taken apart included."""

    def __init__(self) -> None:
        self._bundles: Counter[int] = Counter()
        self._seconds: dict[int, float] = {}

    def best(self) -> int:
        """Return the size to ask next: one that is not known yet, as long as larger ones have been faster."""
        best = SIZES[0]
        for size in SIZES:
            if self._bundles[size] < LEAST:
                return size
            if self._each(size) < self._each(best):
                best = size
            elif size > 2 * best:
                break
        return best

    def learn(self, size: int, seconds: float) -> None:
        """Take note of what a bundle took."""
        self._bundles[size] += 1
        self._seconds[size] = self._seconds.get(size, 0.0) + seconds

    def _each(self, size: int) -> float:
        return self._seconds[size] / (self._bundles[size] * size)


def verdicts(workers: Workers, cases: Iterable[Case]) -> Iterator[tuple[Case, Verdict]]:
    """Try cases as they are generated, many as one, and yield each with a verdict of its own, in whatever order."""
    size, members = BundleSize(), dict[str, Sequence[Case]]()
    for result in workers.results(_bundled(cases, size, members)):
        asked = members.pop(result.case.id)
        told = list(_each(workers, asked, result.verdict))
        size.learn(len(asked), result.verdict.seconds + sum(taken for _, _, taken in told))
        yield from ((case, verdict) for case, verdict, _ in told)


def _bundled(cases: Iterable[Case], size: BundleSize, members: dict[str, Sequence[Case]]) -> Iterator[Case]:
    """Bundles of the cases. One that draws random numbers stays alone: the others would change what it draws. So does
    one that its variant compiles or calls in a way of its own."""
    waiting: list[Case] = []
    for case in cases:
        alone = DRAWS in case.tags or compiled_alone(case) or not is_run_as_it_is(case)
        if not alone:
            waiting.append(case)
        for group in ([case],) if alone else (waiting,) if len(waiting) >= size.best() else ():
            yield _as_one(group, members)
            waiting = waiting if alone else []
    if waiting:
        yield _as_one(waiting, members)


def _as_one(group: Sequence[Case], members: dict[str, Sequence[Case]]) -> Case:
    one = bundle(group)
    members[one.id] = group
    return one


def _each(workers: Workers, asked: Sequence[Case], verdict: Verdict) -> Iterator[tuple[Case, Verdict, float]]:
    """The verdict of each program of a bundle, given that of the bundle, and the seconds that it took to find it."""
    if len(asked) == 1:
        yield asked[0], verdict, 0.0
    elif verdict.outcome in CORRECT:
        share = verdict.seconds / len(asked)
        for case in asked:
            yield case, dataclasses.replace(verdict, **case_labels(case), seconds=share), 0.0
    else:
        for half in (asked[: len(asked) // 2], asked[len(asked) // 2 :]):
            (result,) = workers.results([bundle(half)])
            (first, known, taken), *others = _each(workers, half, result.verdict)
            yield first, known, taken + result.verdict.seconds
            yield from others


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
