"""The order in which failures are sorted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.campaign import CampaignOptions, Tally
from torchstone.fuzz.triage import Triage


class Held:
    """A desk that makes no trial: it says which failure is being sorted, and when that is done with."""

    def __init__(self) -> None:
        self.sorting = ""
        self._done: Callable[[Any], None] = lambda _: None

    def drive(self, trying: Any, done: Callable[[Any], None]) -> None:
        self.sorting, self._done = next(trying).case.op, done

    def finish(self) -> str:
        self._done(None)
        return self.sorting


def test_the_quickest_of_those_that_wait_is_sorted_first(tmp_path: Path):
    """A reduction tries it hundreds of times. Among quick ones the order is that of arrival."""
    desk = Held()
    triage = Triage(CampaignOptions("b", 60.0, 0, tmp_path), Tally(), cast(Any, desk), together=False)
    for op, seconds in (("first", 9.0), ("slow", 8.0), ("quick", 0.3), ("quicker", 0.1), ("middling", 2.0)):
        program = Program(("x0",), (Call("torch.abs", (Ref("x0"),), {}, "v0"),), Ref("v0"))
        case = Case(program, {"x0": torch.ones(2)}, "test", op, "float32")
        about = case.id, "b", case.source, case.op, case.dtype, case.variant
        triage.add(case, Verdict(*about, Stage.RUN, Outcome.ERROR, "", "no kernel", {}, seconds))
    order = [desk.sorting, *(desk.finish() for _ in range(4))]
    assert order == ["first", "quick", "quicker", "middling", "slow"]
