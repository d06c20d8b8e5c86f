"""What steep functions and amplified rounding excuse, and what no steepness does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.conformance.oracle.test_compare import X, Y, compare, one, several, with_element
from tests.sampling import some
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.program import Call, Program, Ref


def amplifies(share: float) -> Finding:
    """What the oracle says of differences so small that bfloat16 knows little of them, off by a share of their size."""
    steps = several(("add", X, 3.1), ("exp", Ref("r0")), ("mul", Ref("r1"), 1.1), ("sub", Ref("r2"), 24.41))
    program = Program(steps.inputs, (*steps.calls, Call("torch.exp", (Ref("r3"),), {}, "r4")), Ref("r4"))
    x = (torch.linspace(-0.004, 0.004, 16)).to(torch.bfloat16)
    exact = torch.exp(torch.exp(x.double() + 3.1) * 1.1 - 24.41)
    return compare(program, lambda x: (exact * (1 + share)).bfloat16(), x)


def test_rounding_that_is_amplified_beyond_half_the_digits_is_no_mismatch_and_more_is() -> None:
    assert amplifies(0.2).outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED)
    assert amplifies(20.0).outcome is Outcome.MISMATCH


def waves(*more: str) -> Program:
    """sin(40 e**x), whose angles, about 880, bfloat16 does not know; the first, which is small, it does."""
    factors = [("mul", Ref(f"r{i}"), factor) for i, factor in enumerate((3.1, 1.3, 0.7, 1.7, 8.3))]
    return several(("exp", X), *factors, *[(name, Ref(f"r{i}")) for i, name in enumerate(("sin", *more), 5)])


LEVELS = torch.tensor([-6.9, *torch.linspace(3.05, 3.15, 15)]).to(torch.bfloat16)


AWAY = (waves()(LEVELS).double() - waves()(LEVELS.double())).abs()
NEAREST = int(AWAY[1:].argmin()) + 1
"""Where eager is nearest to float64, so that its own error excuses nothing."""


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "at, change, outcome",
    [
        (NEAREST, lambda value: value + 0.3 * (1 if value < 0 else -1), Outcome.ILL_CONDITIONED),
        (NEAREST, lambda value: value + 5.0, Outcome.MISMATCH),  # no rounding takes it there
        (0, lambda value: value * 1.5, Outcome.MISMATCH),  # that its neighbours are strewn is no excuse
        (NEAREST, lambda value: math.nan, Outcome.MISMATCH),
    ],
)
def test_where_rounding_is_strewn_each_number_is_looked_at_for_itself(at: int, change: Any, outcome: Outcome) -> None:
    program = waves()
    finding = compare(program, lambda x: with_element(change(program(x)[at].item()), at)(program(x)), LEVELS)
    assert finding.outcome is outcome, finding


def test_between_the_sides_of_jumps_that_rounding_meets_is_no_answer() -> None:
    program = waves("sign")
    finding = compare(program, lambda x: with_element(0.3, NEAREST)(program(x)), LEVELS)
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.parametrize(
    "loss, outcome",
    [(3.354e-4, Outcome.ILL_CONDITIONED), pytest.param(60.0, Outcome.MISMATCH, marks=pytest.mark.torture)],
)
def test_a_loss_of_scores_that_are_known_to_a_unit_of_8(loss: float, outcome: Outcome) -> None:
    """Eager's is 0: its scores are 16 apart. In float64 they are 10.7 apart, and others round them to be 8 apart."""
    x = torch.tensor([64.5625, 63.0, 65.9375], dtype=torch.float16)
    rows = [
        [62.59375, 62.375, 64.625],
        [64.875, 64.125, 64.0625],
        [64.8125, 65.4375, 63.03125],
        [64.625, 63.25, 62.96875],
    ]
    weight = torch.tensor(rows, dtype=torch.float16)
    program = several(("mv", Y, X), ("nn.functional.cross_entropy", Ref("r0"), Ref("x2")), inputs=("x0", "x1", "x2"))
    given = torch.tensor(loss, dtype=torch.float16)
    assert program(x, weight, torch.tensor(2)) == 0
    finding = compare(program, lambda *tensors: given, x, weight, torch.tensor(2))
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(
    "x, change, outcome",
    [
        (-1.5706383, 1.75, Outcome.ILL_CONDITIONED),  # a float32 further, the tangent is 4.8 further
        (-1.5706383, 20.0, Outcome.MISMATCH),
        (1.25, 0.001, Outcome.MISMATCH),
    ],
)
def test_next_to_a_pole_is_what_inputs_that_move_by_a_ulp_give(x: float, change: float, outcome: Outcome) -> None:
    program = one("tan", X)
    finding = compare(program, lambda x: program(x) + change, torch.tensor([x]))
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize("x", [0.5, math.nextafter(0.5, 1)])
def test_between_the_sides_of_a_jump_is_no_answer_however_near_it_is(x: float) -> None:
    program = several(("mul", X, 2.0), ("floor", Ref("r0")), ("mul", Ref("r1"), 3e4), ("sin", Ref("r2")))
    finding = compare(program, lambda x: program(x) + 0.3, torch.tensor([x]))
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    some(
        ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai", "spherical_bessel_j0"],
        ("bessel_j0", "bessel_y1", "airy_ai").__contains__,
    ),
)
def test_beside_the_zero_of_a_wave_its_amplitude_counts_and_elsewhere_the_number(name: str) -> None:
    function = getattr(torch.special, name)
    x = (1 if name != "airy_ai" else -1) * torch.linspace(0.8, 9.0, 4001)
    zero = int(function(x.double()).abs().argmin())
    away = int(function(x.double()).abs().argmax())

    def off(at: int, error: float) -> Outcome:
        return compare(
            one(f"special.{name}"), lambda x: with_element(float(function(x.double())[at]) + error, at)(function(x)), x
        ).outcome

    height = float(function(x.double())[len(x) // 2 :].abs().max())
    assert off(zero, 2.0**-23 * height) is Outcome.PASS
    assert off(zero, 2.0**-16 * height) is Outcome.MISMATCH
    assert off(away, 2.0**-16 * height) is Outcome.MISMATCH


@pytest.mark.parametrize(
    ("scale", "right"), [(2.0**34, "pass"), pytest.param(2.0**38, "ill-conditioned", marks=pytest.mark.torture)]
)
def test_a_mean_that_is_rounded_is_seen_where_nothing_but_its_rounding_is_left(scale: float, right: str) -> None:
    """The sum of a row that has been normalized is zero, but for what rounding the mean leaves in each element.

    An ULP of 2**38 is a sixtieth of what the elements differ by: results bend with their roundings, and a wave that
    bends as much may have an extremum on the way.
    """
    x = scale + 1e6 * torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    program = several(("nn.functional.layer_norm", X, (16,)), ("sum", Ref("r0"), -1))

    def by_steps(x: torch.Tensor, off: float = 0.0) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True) * (1 + off)
        return (centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)).sum(-1)

    assert compare(program, by_steps, x).outcome == right
    assert compare(program, lambda x: by_steps(x, 1e-4), x).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_beyond_a_jump_that_eager_has_on_its_other_side_nothing_is_right() -> None:
    factors = [("mul", Ref(f"r{i}") if i >= 0 else X, factor) for i, factor in enumerate((3.1, 1.3, 0.7, 1.7, 8.3), -1)]
    program = several(*factors, ("floor", Ref("r4")), ("mul", Ref("r5"), 10.0))
    x = torch.linspace(1.0, 9.0, 400_001)
    away = program(x).double() - program(x.double())
    at = int(away.abs().argmax())
    x, away = x[at : at + 1], away[at : at + 1]
    assert abs(away) == 10
    finding = compare(program, lambda x: (program(x.double()) + 3 * away).float(), x)
    assert finding.outcome is Outcome.MISMATCH, finding
