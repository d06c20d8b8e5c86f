"""Accumulations whose partial results have the dtype of the result, and those whose partial results are wider."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref

TERMS = torch.tensor([60000.0, 50000.0, -60000.0, -40000.0], dtype=torch.float16)
FACTORS = torch.tensor([1000.0, 1000.0, 0.001, 0.002], dtype=torch.float16)
PLACES = torch.zeros(4, dtype=torch.int64)
DEST = Ref("x2")


def indexed(target: str, *args: object, **kwargs: object) -> Program:
    return Program(("x0", "x1", "x2"), (Call(f"torch.{target}", args, kwargs, "r0"),), Ref("r0"))


def answers(value: float) -> Callable[..., Tensor]:
    return lambda *args: torch.tensor([value], dtype=torch.float16)


INDEXED_SUMS = {
    "index_add": indexed("index_add", DEST, 0, Y, X),
    "scatter_add": indexed("scatter_add", DEST, 0, Y, X),
    "index_put": indexed("index_put", DEST, (Y,), X, accumulate=True),
    "put": indexed("put", DEST, Y, X, accumulate=True),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", INDEXED_SUMS)
def test_sums_that_go_to_one_place_leave_the_range_of_the_place(name: str) -> None:
    given = TERMS, PLACES, torch.zeros(1, dtype=torch.float16)
    for value in (10000.0, float("inf"), float("-inf")):
        finding = compare(INDEXED_SUMS[name], answers(value), *given)
        assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), finding
    few = torch.tensor([300.0, 500.0, -600.0, -400.0], dtype=torch.float16)  # these leave it in no order
    for value in (float("inf"), -100.0):
        finding = compare(INDEXED_SUMS[name], answers(value), few, *given[1:])
        assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.torture
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("source", [(4,), (2, 4)])
def test_a_mean_at_one_place_overflows_where_its_sum_does(source: tuple[int, ...]) -> None:
    program = indexed("index_reduce", DEST, -1, Y, X, "mean", include_self=False)
    given = TERMS.expand(source), PLACES, torch.zeros((*source[:-1], 1), dtype=torch.float16)
    for value, wrong in ((2500.0, False), (float("inf"), False), (float("-inf"), False), (100.0, True)):
        finding = compare(program, lambda *args, value=value: torch.full_like(args[2], value), *given)
        assert (finding.outcome is Outcome.MISMATCH) == wrong, finding
    few = torch.tensor([300.0, 500.0, -600.0, -400.0], dtype=torch.float16).expand(source)
    finding = compare(program, lambda *args: torch.full_like(args[2], float("inf")), few, *given[1:])
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:index_reduce")  # once in a process, that it is in beta
@pytest.mark.parametrize("value", [0.0, 2.0, float("inf")])
def test_products_overflow_or_underflow_in_float16(value: float) -> None:
    program = indexed("index_reduce", DEST, 0, Y, X, "prod")
    for factors in (FACTORS, FACTORS.flip(0)):
        finding = compare(program, answers(value), factors, PLACES, torch.ones(1, dtype=torch.float16))
        assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), finding
    finding = compare(program, answers(-value - 3.0), FACTORS, PLACES, torch.ones(1, dtype=torch.float16))
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.few(1)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_other_sums_of_float16_do_not_overflow_on_the_way(value: float) -> None:
    finding = compare(one("sum", X, 0, True), answers(value), TERMS)
    assert finding.outcome is Outcome.MISMATCH, finding
