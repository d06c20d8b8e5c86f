"""A failure that a variant has shown is asked as plainly as it still fails: a script of that is a few lines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import case

from tests.mutants import MutatedEager
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.apply import apply
from torchstone.reducers import engine
from torchstone.reducers.failure import case_problem
from torchstone.reducers.passes import passes

aten = torch.ops.aten


class AnySize(MutatedEager):
    """One whose compiled programs take tensors of any size."""

    def compile_dynamic(self, fn: Any, args: tuple[torch.Tensor, ...], dims: Any) -> Any:
        return self.compile(fn, args)


def _even_rows(func: Any, x: torch.Tensor) -> torch.Tensor:
    return func(x) + (1 if x.shape[0] % 2 == 0 else 0)


def _refuses_even_rows(func: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 2 == 0:
        raise ValueError("no even number of rows")
    return func(x)


def reduced(start: Case, variant: str, wrong: Any) -> Case:
    """The case in the variant, reduced by the verdicts of a run on a backend whose ``abs`` is wrong."""
    backend = AnySize("even", {aten.abs: wrong})
    asked = apply(start, variant)
    assert isinstance(asked, Case)

    def judge(candidate: Case) -> Any:
        return run_case(candidate, backend)

    assert judge(start).outcome is (Outcome.PASS if start.args[0].shape[0] % 2 else Outcome.MISMATCH)
    return engine.reduce(case_problem(asked, judge(asked), judge), passes()).value


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", [_even_rows, _refuses_even_rows])
def test_what_a_rewritten_program_shows_becomes_a_program_of_its_own(wrong: Any) -> None:
    start = case([("v0", "abs", "x0")], "v0", x0=torch.arange(12.0).reshape(3, 4) - 5)
    found = reduced(start, "rewritten", wrong)
    assert found.variant == "default"
    assert [call.target for call in found.program.calls] == ["torch.abs"]
    assert found.args[0].shape[0] == 2


def test_what_fails_at_one_size_is_not_asked_at_others() -> None:
    start = case([("v0", "abs", "x0"), ("v1", "neg", "v0")], "v1", x0=torch.arange(12.0).reshape(4, 3) - 5)
    assert reduced(start, "dynamic", _even_rows).variant == "default"
