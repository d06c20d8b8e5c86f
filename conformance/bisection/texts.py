"""The program as the stage that is to blame was given it, and as it left it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchstone.conformance.bisection.search import Blame, known_rungs
from torchstone.conformance.custom.apart import Made, Steps, stream
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case

GIVEN, MADE = "before", "after"


def stage_texts(case: Case, backend: str, blame: Blame, seconds: float = 60.0) -> dict[str, tuple[str, str]]:
    """Return ``before`` and ``after``, each the name of a stage and its text, as far as the compiler comes.

    The whole compiler has the texts of all its stages. Where it raises or dies, what is up to the stage may have them,
    or what is up to the one before. Each is compiled in a fork of this process.
    """
    rungs = list(known_rungs(backend, refused=blame.verdict.outcome is Outcome.UNSUPPORTED))
    at = next((at for at, rung in enumerate(rungs) if rung.stage == blame.stage), None)
    if at is None:
        return {}
    wanted = {GIVEN: rungs[at].given, MADE: rungs[at].made}

    def make(steps: Steps) -> Iterator[Made]:
        for rung in reversed(rungs[max(at - 1, 0) :]):
            if not steps.begin(rung.stage):
                continue
            stages: Mapping[str, Any] = {}
            with contextlib.suppress(Exception), torch.no_grad():
                compiled = rung.backend().compile(case.program, case.fresh_args())
                stages = getattr(compiled, "stages", {})
            sides = (GIVEN,) if rung is rungs[at - 1] and at else (GIVEN, MADE)
            for side in sides:
                if wanted[side] in stages:
                    yield Made(side, stages[wanted[side]])

    found = {made.key: made.told for made in stream(make, seconds) if isinstance(made, Made)}
    return {side: (wanted[side], str(found[side])) for side in (GIVEN, MADE) if side in found}
