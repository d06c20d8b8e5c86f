"""Steps within the formula of one op may leave the range where a fused kernel does not; steps of a program may not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, one, several
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

INF, NAN = math.inf, math.nan
CROSS = one("cross", X, Y, 1)
LERP = one("lerp", X, Y, -0.5)
ADDR = Program(("x0", "x1", "x2"), (Call("torch.addr", (X, Y, Ref("x2")), {"alpha": 0.25}, "r0"),), Ref("r0"))


def rows(*values: Any) -> Tensor:
    return torch.tensor(values)


FACTORS = (rows([0.0, 2e19, 1.3e19]), rows([0.0, 1.4e19, 2e19]))
"""Of the cross product: 4e38 - 1.82e38, of which the first is beyond float32's range."""
DIFFERENCE = rows([2.18e38, 0.0, 0.0])
ENDS = (rows([1.6e38]), rows([-1.6e38]))
"""Of a line on which 3.2e38 is half their distance before the first: 1.5 times it is 4.8e38."""
OUTER = tuple(torch.tensor(row, dtype=torch.float64) for row in ([0.0, 0.0], [1e200, 2.0], [3e108, 1.0]))
SCALED_FIRST = 0.25 * OUTER[1][:, None] * OUTER[2]
SCALED_LAST = OUTER[1][:, None] * OUTER[2] * 0.25


def outcome(program: Program, inputs: tuple[Tensor, ...], expected: Tensor, actual: Tensor) -> Outcome:
    """Of a backend that gives ``actual`` where eager's kernel gives ``expected``."""
    return judge(program, inputs, Observed(expected, inputs), Observed(actual, inputs)).outcome


RIGHT: dict[str, tuple[Program, tuple[Tensor, ...], Tensor, Tensor]] = {
    "products that are not fused into their difference": (CROSS, FACTORS, DIFFERENCE, rows([INF, 0.0, 0.0])),
    "a line by its slope": (LERP, ENDS, rows([3.2e38]), rows([INF])),
    "a factor that comes last": (ADDR, OUTER, SCALED_FIRST, SCALED_LAST),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RIGHT)
def test_a_step_within_a_formula_may_overflow(name: str) -> None:
    program, inputs, expected, actual = RIGHT[name]
    assert torch.isfinite(expected).all() and not torch.isfinite(actual).all()
    assert outcome(program, inputs, expected, actual) is Outcome.ILL_CONDITIONED


WRONG: dict[str, tuple[Program, tuple[Tensor, ...], Tensor, Tensor]] = {
    "the other infinity": (CROSS, FACTORS, DIFFERENCE, rows([-INF, 0.0, 0.0])),
    "infinity where no step overflows": (CROSS, FACTORS, DIFFERENCE, rows([2.18e38, 0.0, INF])),
    "another number beside it": (CROSS, FACTORS, DIFFERENCE, rows([INF, 0.0, 1.0])),
    "a number between": (CROSS, FACTORS, DIFFERENCE, rows([3e38, 0.0, 0.0])),
    "NaN": (LERP, ENDS, rows([3.2e38]), rows([NAN])),
    "a line that is steeper, and in range": (LERP, ENDS, rows([3.2e38]), rows([3.3e38])),
    "a factor that comes last, and a sign": (ADDR, OUTER, SCALED_FIRST, -SCALED_LAST),
    "16-bit numbers, which are computed in float32": (
        LERP,
        (rows([3e4]).half(), rows([-3e4]).half()),
        rows([6e4]).half(),
        rows([INF]).half(),
    ),
    "a step of the program": (
        several(("mul", X, 0.5), ("mul", X, 0.75), inputs=("x0",)),
        (rows([3e38]),),
        rows([2.25e38]),
        rows([INF]),
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WRONG)
def test_no_more_than_its_steps_give_is_excused(name: str) -> None:
    assert outcome(*WRONG[name]) is Outcome.MISMATCH


@pytest.mark.torture
@pytest.mark.parametrize(
    ("rstd", "want"), [(0.0, Outcome.ILL_CONDITIONED), (NAN, Outcome.PASS), (3.0, Outcome.MISMATCH)]
)
def test_a_variance_of_sums_may_overflow_where_a_running_one_is_nan(rstd: float, want: Outcome) -> None:
    norm = one("native_layer_norm", X, [4], None, None, 0.5)
    program = Program(norm.inputs, norm.calls, Ref("r0", (2,)))
    x = torch.full((1, 4), 3e38)
    expected = torch.native_layer_norm(x, [4], None, None, 0.5)[2]
    assert outcome(program, (x,), expected, torch.tensor([[rstd]])) is want
