"""At the end of float64's range, where nothing wider tells: what some order gives is right, all else is caught."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, one, several
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

INF, NAN = math.inf, math.nan
WIDEST = torch.finfo(torch.float64).max
UNIT = math.ldexp(1.0, 1023 - 52)
"""The unit in the last place of the largest numbers."""
SUBNORMAL = 1e-310


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def is_right(program: Program, inputs: tuple[Tensor, ...], eager: Tensor, answer: Tensor) -> bool:
    return judge(program, inputs, Observed(eager, inputs), Observed(answer, inputs)).outcome is not Outcome.MISMATCH


TRANSFORM = {"s": (3, 10), "dim": (1, 2), "norm": "ortho"}
EQUAL = torch.full((32, 6, 7), -WIDEST, dtype=torch.float64)
"""Transformed, equal numbers are all in the first of each matrix, and what rounding leaves of the others."""


def beside_the_first(transformed: Tensor, value: float) -> Tensor:
    """With a number of one's own wherever no term is infinite after the first dim."""
    answer = transformed.clone()
    answer[:, 1:, 1:] = value
    return answer


@pytest.mark.few(1)
@pytest.mark.parametrize("op", ["hfft2", "ihfft2"])
@pytest.mark.parametrize(
    "residue, right",
    [(0.0, True), (1.4e276, True), (-2 * UNIT, True), (1e3 * UNIT, False), (-1e3 * UNIT, False), (WIDEST / 64, False)],
)
def test_terms_that_cancel_leave_a_few_units_in_each_of_many_elements(op: str, residue: float, right: bool) -> None:
    program = one(f"fft.{op}", X, **TRANSFORM)
    eager = program(EQUAL)
    assert torch.isnan(eager[:, 1:]).any()
    assert is_right(program, (EQUAL,), eager, beside_the_first(eager, residue)) is right


@pytest.mark.few(2)
@pytest.mark.parametrize("sign, right", [(1.0, True), (-1.0, True), (0.5, False)])
def test_between_the_signs_of_such_units_there_is_nothing(sign: float, right: bool) -> None:
    program = several(("fft.hfft2", X, *TRANSFORM.values()), ("sign", Ref("r0")))
    eager = program(EQUAL)
    assert is_right(program, (EQUAL,), eager, beside_the_first(eager, sign)) is right


ADDED = Program(
    ("x", "a", "b"),
    (Call("torch.addmm", (Ref("x"), Ref("a"), Ref("b")), {"alpha": INF, "beta": 0.0}, "y"),),
    Ref("y"),
)


@pytest.mark.few(1)
@pytest.mark.parametrize("answer, right", [(INF, True), (NAN, True), (7.0, False)])
def test_infinity_times_a_subnormal_number_is_infinite(answer: float, right: bool) -> None:
    """Infinity times each of the first terms is NaN in all; their sum is infinite, and so is infinity times it."""
    inputs = (torch.zeros(1, 1, dtype=torch.float64), f64(-4.0, 7.0, INF)[None], f64(5.0, 2.0, SUBNORMAL)[:, None])
    assert is_right(ADDED, inputs, f64(NAN)[None], f64(answer)[None]) is right


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "program", [one("dot", X, Y), several(("mul", X, Y), ("add", Ref("r0"), 1.0), inputs=("x0", "x1"))]
)
@pytest.mark.parametrize("answer", [NAN, -INF, 1.0])
def test_and_no_other_number(program: Program, answer: float) -> None:
    inputs = (f64(INF), f64(SUBNORMAL))
    eager = program(*inputs)
    assert bool((eager == INF).all())
    assert not is_right(program, inputs, eager, torch.full_like(eager, answer))


SUM = one("sum", X)
BEYOND = f64(WIDEST, WIDEST, -WIDEST, -WIDEST, -WIDEST, -WIDEST)
"""Their sum is beyond the range, and its first half, too, on the other side."""
ONE_SIDE = f64(1e300, -WIDEST, -WIDEST, 1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "terms, answer, right",
    [
        *((BEYOND, answer, right) for answer, right in ((INF, True), (-INF, True), (NAN, True), (0.0, False))),
        *((ONE_SIDE, answer, right) for answer, right in ((INF, False), (-INF, True), (NAN, False), (1e300, False))),
    ],
)
def test_a_sum_beyond_the_range_may_leave_it_on_the_other_side_first(terms: Tensor, answer: float, right: bool) -> None:
    assert is_right(SUM, (terms,), f64(-INF)[0], f64(answer)[0]) is right


LARGE = torch.tensor([1.5e308 + 1e308j, 3.0 - 2.0j, 0.01 + 0.02j], dtype=torch.complex128)
"""Multiplied from the left they overflow; all of them are in range."""


@pytest.mark.few(1)
@pytest.mark.parametrize("op", ["prod", "cumprod"])
@pytest.mark.parametrize(
    "answer, right", [(None, True), (complex(NAN, NAN), True), (complex(INF, NAN), True), (1.0, False)]
)
def test_complex_products_in_another_order(op: str, answer: complex | None, right: bool) -> None:
    program = one(op, X, 0)
    eager, within = program(LARGE), ((LARGE / 2.0**8)[0] * LARGE[1] * LARGE[2]) * 2.0**8
    last = within if answer is None else torch.tensor(answer, dtype=torch.complex128)
    given = last if op == "prod" else torch.stack([eager[0], eager[1], last])
    assert is_right(program, (LARGE,), eager, given) is right
    if answer is None:
        given = given * (1 + 1e-6)
        assert not is_right(program, (LARGE,), eager, given)
