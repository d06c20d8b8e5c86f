"""The order in which failures are sorted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.campaign import CampaignOptions, Tally, count
from torchstone.fuzz.triage import Triage


class Held:
    """A desk that makes no trial: it says which failure is being sorted, and when that is done with."""

    def __init__(self) -> None:
        self.sorting = ""
        self._done: Callable[[Any], None] = lambda _: None

    def drive(self, trying: Any, done: Callable[[Any], None]) -> None:
        self.trial, self.trying, self._done = next(trying), trying, done
        self.sorting = self.trial.case.op

    def finish(self) -> str:
        self._done(None)
        return self.sorting


def failure(op: str, seconds: float, outcome: Outcome = Outcome.ERROR) -> tuple[Case, Verdict]:
    program = Program(("x0",), (Call("torch.abs", (Ref("x0"),), {}, "v0"),), Ref("v0"))
    case = Case(program, {"x0": torch.ones(2)}, "test", op, "float32")
    about = case.id, "b", case.source, case.op, case.dtype, case.variant
    return case, Verdict(*about, Stage.COMPARE, outcome, "", "wrong", {}, seconds)


def test_the_quickest_of_those_that_wait_is_sorted_first(tmp_path: Path):
    """A reduction tries it hundreds of times. Among quick ones the order is that of arrival."""
    desk = Held()
    triage = Triage(CampaignOptions("b", 60.0, 0, tmp_path), Tally(), cast(Any, desk), together=False)
    for op, seconds in (("first", 9.0), ("slow", 8.0), ("quick", 0.3), ("quicker", 0.1), ("middling", 2.0)):
        triage.add(*failure(op, seconds))
    order = [desk.sorting, *(desk.finish() for _ in range(4))]
    assert order == ["first", "quick", "quicker", "middling", "slow"]


@pytest.mark.parametrize("outcome", [Outcome.MISMATCH, Outcome.ILL_CONDITIONED])
def test_a_mismatch_by_few_runs_is_judged_in_full_before_it_is_a_finding(outcome: Outcome, tmp_path: Path):
    desk, tally = Held(), Tally()
    triage = Triage(CampaignOptions("b", 60.0, 0, tmp_path), tally, cast(Any, desk), together=False, quick=True)
    case, verdict = failure("off", 0.1, Outcome.MISMATCH)
    count(tally, case, verdict)
    triage.add(case, verdict)
    assert desk.trial.case is case and not desk.trial.quick
    try:
        desk.trying.send(replace(verdict, outcome=outcome))
    except StopIteration:
        assert outcome is Outcome.ILL_CONDITIONED and not tally.findings.ranked() and not triage.leave()
    else:
        assert outcome is Outcome.MISMATCH, "it is being reduced"
    assert tally.outcomes == {str(outcome): 1}
