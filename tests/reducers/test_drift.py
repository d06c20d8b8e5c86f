"""A reduction keeps the failure that it was given: its place, how the number is wrong, keywords that it hangs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import case, reduced

from tests.mutants import MutatedEager
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.repro.place import Place, failing_place
from torchstone.reducers.failure import reducing
from torchstone.reducers.lineage import Lineage

aten = torch.ops.aten
Ops = dict[Any, Callable[..., Any]]


def _off(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs) + 1


def _nan(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs) * float("nan")


def program(start: Case, wrong: Ops) -> str:
    return str(reduced(start, MutatedEager("wrong", wrong)).value.program)


def test_another_output_that_is_wrong_too_is_another_finding():
    """The rounding is the simpler program, and comes first; the verdict names the difference."""
    calls = [("v0", "round", "x0"), ("v1", "sub", "x0", "x1"), ("v2", "neg", "v1")]
    start = case(calls, ["v2", "v0"], x0=torch.tensor([0.5, 2.0]), x1=torch.tensor([3.0, 4.0]))
    assert program(start, {aten.sub: _off, aten.round: _off}) == "v0 = torch.sub(x0, x0)\nreturn v0"
    start = case(calls, ["v0", "v2"], **start.inputs)
    assert program(start, {aten.sub: _off, aten.round: _off}) == "v0 = torch.round(x0)\nreturn v0"


def test_so_is_another_result_of_the_same_call():
    def both(func: Any, *args: Any, **kwargs: Any) -> Any:
        values, indices = func(*args, **kwargs)
        return values + 1, indices + 1

    start = case([("v0", "topk", "x0", 2)], [Ref("v0", (1,)), Ref("v0", (0,))], x0=torch.tensor([3.0, 5.0, 4.0]))
    assert program(start, {aten.topk: both}).endswith("return v0[1]")
    start = case([("v0", "topk", "x0", 2)], [Ref("v0", (0,)), Ref("v0", (1,))], x0=torch.tensor([3.0, 5.0, 4.0]))
    assert program(start, {aten.topk: both}).endswith("return v0[0]")


def test_a_fault_upstream_of_the_place_is_the_same():
    calls = [("v0", "exp", "x0"), ("v1", "mul", "v0", 2.0), ("v2", "neg", "x0")]
    assert program(case(calls, ["v2", "v1"], x0=torch.ones(2)), {aten.exp: _off}) == "v0 = torch.exp(x0)\nreturn v0"


def test_nan_for_a_number_does_not_become_another_number():
    calls = [("v0", "exp", "x0"), ("v1", "sin", "v0")]
    start = case(calls, "v1", x0=torch.ones(3))
    assert program(start, {aten.exp: _off, aten.sin: _nan}) == "v0 = torch.sin(x0)\nreturn v0"
    assert program(start, {aten.exp: _nan, aten.sin: _off}) == "v0 = torch.exp(x0)\nreturn v0"


@pytest.mark.parametrize("wrong", ["decimals", "plain"])
def test_a_keyword_stays_where_the_failure_hangs_on_it(wrong: str):
    """Halves are wrong in any rounding, which the numbers of the start do not show."""

    def halves(func: Any, x: Any, **kwargs: Any) -> Any:
        out = func(x, **kwargs)
        return out + 1 if kwargs and wrong == "decimals" else torch.where(x.frac().abs() == 0.5, out + 1, out)

    start = case([("v0", "round", "x0", {"decimals": 1})], "v0", x0=torch.tensor([0.25, 1.75]))
    if wrong == "decimals":
        assert "decimals=" in program(start, {aten.round: halves})
    else:
        start = start.replace(inputs={"x0": torch.tensor([0.5, 1.75])})
        assert program(start, {aten.round: halves}) == "v0 = torch.round(x0)\nreturn v0"


def _mutation(candidate: Case, index: int) -> Verdict:
    evidence = {"where": f"input[{index}]", "expected": 1.0, "actual": 2.0}
    return Verdict(
        candidate.id, "b", "", "", "", "", Stage.COMPARE, Outcome.MISMATCH, Kind.MUTATION, "mutated", evidence
    )


def test_the_input_that_is_written_wrongly_stays_that_one():
    x0, mean, variance = torch.randn(2, 3), torch.zeros(3), torch.ones(3)
    calls = [("v0", "nn.functional.batch_norm", "x0", "x1", "x2", {"training": True})]
    start = case(calls, "v0", x0=x0, x1=mean, x2=variance)
    lineage = Lineage.of(start, _mutation(start, 2))
    assert lineage.holds(start, _mutation(start, 2)) and not lineage.holds(start, _mutation(start, 1))
    assert not lineage.holds(start, replace(_mutation(start, 0), evidence={"where": "output"}))


def test_a_view_may_go_that_the_input_was_written_through():
    calls = [("v0", "Tensor.view", "x0", [4]), ("v1", "Tensor.add_", "v0", 1)]
    lineage = Lineage.of(start := case(calls, "v1", x0=torch.ones(2, 2)), _mutation(start, 0))
    assert lineage.holds(case([("v0", "Tensor.add_", "x0", 1)], "v0", x0=torch.ones(4)), _mutation(start, 0))


def test_places_are_read_and_nothing_else_is():
    def verdict(where: Any, message: str = "") -> Verdict:
        evidence = {} if where is None else {"where": where}
        return Verdict("c", "b", "", "", "", "", Stage.COMPARE, Outcome.MISMATCH, "value", message, evidence)

    assert failing_place(verdict("output[1]['a']")) == Place("output", (1, "a"))
    assert failing_place(verdict("around input[0]")) == Place("input", (0,))
    assert failing_place(verdict(None, "mutated: input[2]: expected float32[2], got float64[2]")) == Place(
        "input", (2,)
    )
    assert failing_place(verdict(None, "output: expected 3, got 4")) == Place("output")
    for where in ("output[x]", "output['\\n']", "print('output')", ["output"], "output['a'](", ""):
        assert failing_place(verdict(where)) is None
    assert str(Place("output", (1, "a"))) == "output[1]['a']"


def test_what_few_runs_take_for_the_failure_is_judged_in_full():
    """Where that finds the reduced case ill-conditioned, the reduction is done again by the whole oracle."""
    start = case([("v0", "exp", "x0"), ("v1", "neg", "v0"), ("v2", "abs", "v1")], ["v2"], x0=torch.ones(2))
    asked: list[bool] = []

    def verdict(candidate: Case, quick: bool) -> Verdict:
        soft = not quick and "exp" not in str(candidate.program)
        outcome = Outcome.ILL_CONDITIONED if soft else Outcome.MISMATCH
        about = candidate.id, "b", candidate.source, candidate.op, candidate.dtype, candidate.variant
        return Verdict(*about, Stage.COMPARE, outcome, "" if soft else Kind.VALUE, "output[0]: wrong")

    asking, answers = reducing(start, "b"), None
    while True:
        try:
            ask = next(asking) if answers is None else asking.send(answers)
        except StopIteration as end:
            found = end.value
            break
        asked.append(ask.quick)
        answers = [verdict(candidate, ask.quick) for candidate in ask.cases]
    assert found.confirmed and [call.operator for call in found.case.program.calls] == ["exp"]
    assert True in asked and not asked[0] and not asked[-1]


@pytest.mark.parametrize("same", [True, False], ids=["same place", "another place"])
def test_a_known_mismatch_is_judged_in_full_at_first_where_few_runs_see_another(same: bool):
    start = case([("v0", "exp", "x0"), ("v1", "neg", "x0")], ["v0", "v1"], x0=torch.ones(2))
    about = start.id, "b", start.source, start.op, start.dtype, start.variant

    def wrong(output: int) -> Verdict:
        message = f"output[{output}]: wrong"
        return Verdict(*about, Stage.COMPARE, Outcome.MISMATCH, Kind.VALUE, message, {"where": f"output[{output}]"})

    asking = reducing(start, "b", verdict=wrong(1))
    assert next(asking).quick
    assert asking.send([wrong(1 if same else 0)]).quick is same
