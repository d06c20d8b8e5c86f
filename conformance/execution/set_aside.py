"""A bundle of cases on trial: a program that is wrong is set aside, and the others are judged without it.

What was compiled stays as it is, so that one wrong program does not have the others compiled again. Of what was set
aside nothing is said but that it was: it is asked again by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.execution.undefined_behavior import SEED, undefined_behavior
from torchstone.conformance.execution.verdict import Outcome, Stage
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.bundle import bundle, members
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro.place import Place, named_place, sharing_place

ASIDE = "set_aside"
"""The key in the evidence on a bundle of the numbers of its programs that were set aside."""

Compare: TypeAlias = "Callable[[Case, Backend, Any], tuple[Stage, Finding]]"


def compare_setting_aside(case: Case, backend: Backend, compiled: Any, compare: Compare) -> tuple[Stage, Finding]:
    """Compare a case with eager; of a bundle set aside what is wrong, as long as the finding says which program is.

    The finding is that of the others, at least one. Their evidence of what ran is that of the whole.
    """
    cases = members(case)
    if len(cases) == 1 or undefined_behavior(case):
        return compare(case, backend, compiled)
    if compiled is None:
        try:
            torch.default_generator.manual_seed(SEED)
            compiled = backend.compile(case.program, case.fresh_args())
        except Exception as error:
            compiled = error
    stage, finding = compare(case, backend, compiled)
    left = list(range(len(cases)))
    while len(left) > 1 and finding.outcome in (Outcome.MISMATCH, Outcome.ILL_CONDITIONED):
        place = named_place(finding.message, finding.evidence) or sharing_place(finding.message)
        at = member_at([cases[number] for number in left], place)
        if at is None:
            break
        del left[at]
        some = _Some(compiled, cases, left)
        stage, finding = compare(bundle([cases[number] for number in left]), backend, some)
    aside = [number for number in range(len(cases)) if number not in left]
    return stage, replace(finding, evidence=finding.evidence | {ASIDE: aside}) if aside else finding


def member_at(cases: Sequence[Case], place: Place | None) -> int | None:
    """Which case of a bundle a place in its results, or its inputs, is of."""
    if place is None or not place.path or not isinstance(place.path[0], int):
        return None
    if place.side == "output":
        return place.path[0] if place.path[0] < len(cases) else None
    ends = itertools.accumulate(len(case.program.inputs) for case in cases)
    return next((at for at, end in enumerate(ends) if place.path[0] < end), None)


class _Some:
    """What was compiled of a bundle, called for some of its cases: the others get the inputs that they have."""

    def __init__(self, compiled: Callable[..., Any], cases: Sequence[Case], numbers: Sequence[int]) -> None:
        self.compiled = compiled
        self.cases = cases
        self.numbers = list(numbers)

    def __call__(self, *args: Any) -> Any:
        given, whole = iter(args), []
        for number, case in enumerate(self.cases):
            own = case.fresh_args()
            whole += [next(given) for _ in own] if number in self.numbers else own
        results = self.compiled(*whole)
        found = [results[number] for number in self.numbers]
        return found if len(found) > 1 else found[0]

    @property
    def evidence(self) -> dict[str, Any]:
        """What the whole tells of itself."""
        return getattr(self.compiled, "evidence", None) or {}
