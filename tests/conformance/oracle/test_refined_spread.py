"""How far later runs of the rounding model may widen the room that the first few give."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from torchstone.conformance.oracle.elementwise import Reference
from torchstone.conformance.oracle.reference import leaf as module
from torchstone.conformance.oracle.tolerances import MAX_SPREAD_GROWTH, SPREAD_FACTOR

FEW, FAR = 1.0, 20.0  # further than MAX_SPREAD_GROWTH of the first few


def refined(later: list[float]) -> float:
    """The room of one number that strays by ``FEW`` in the first runs, in proportion, and so in the later ones."""
    referee = SimpleNamespace(scaled_runs=lambda scale: [FEW * scale], more_rounded_runs=later)
    leaf = SimpleNamespace(
        referee=referee, others=lambda strays, _: [torch.tensor([s], dtype=torch.float64) for s in strays]
    )
    truth = Reference(torch.zeros(1, dtype=torch.float64), torch.full((1,), FEW, dtype=torch.float64))
    spread = module.refine_spread(truth, torch.zeros(1), torch.ones(1, dtype=torch.bool), leaf).spread  # type: ignore[arg-type]
    return SPREAD_FACTOR * float(spread)


def test_later_runs_that_stray_a_little_further_count_and_give_no_more_room_than_that() -> None:
    assert refined([0.5, 2.0, MAX_SPREAD_GROWTH]) == MAX_SPREAD_GROWTH
    assert refined([0.5, 2.0, 3.0]) == SPREAD_FACTOR * FEW


def test_a_jump_that_some_later_runs_meet_does_not() -> None:
    assert refined([0.5, 0.7, 6.0, FAR]) == 6.0


def test_where_most_later_runs_stray_far_the_first_were_luck() -> None:
    assert refined([4.0, FAR, FAR, FAR + 1, FAR + 100]) == FAR
    assert refined([0.5, FAR, FAR, FAR + 1, FAR + 100]) == SPREAD_FACTOR * FEW, "a jump that most of them meet"
    assert refined([]) == SPREAD_FACTOR * FEW


def test_a_wave_that_saturates_is_not_smooth() -> None:
    """Four spreads from there a wave would be beyond its extremum, and what lies there may be a gap."""
    more = [2 * SPREAD_FACTOR]
    for far, grown in ((SPREAD_FACTOR, 2.0), (0.7 * SPREAD_FACTOR, FEW)):
        strayed = {1.0: FEW, module.DAMPED_SCALE: FEW * module.DAMPED_SCALE, SPREAD_FACTOR: FEW * far}
        referee = SimpleNamespace(scaled_runs=lambda scale, of=strayed: [of[scale]], more_rounded_runs=more)
        leaf = SimpleNamespace(
            referee=referee, others=lambda strays, _: [torch.tensor([s], dtype=torch.float64) for s in strays]
        )
        truth = Reference(torch.zeros(1, dtype=torch.float64), torch.full((1,), FEW, dtype=torch.float64))
        assert float(module.refine_spread(truth, torch.zeros(1), torch.ones(1, dtype=torch.bool), leaf).spread) == grown  # type: ignore[arg-type]


def test_16_bit_numbers_are_right_as_far_as_float32_strays_by_no_jump() -> None:
    """Whatever the roundings of their own dtype meet, and no other dtype's numbers."""

    def judged(off: float, dtype: torch.dtype, jumps_at: float) -> bool:
        runs = lambda scale: [FEW * scale if scale < jumps_at else FAR]  # noqa: E731
        referee = SimpleNamespace(scaled_runs=runs)
        leaf = SimpleNamespace(
            referee=referee, others=lambda strays, _: [torch.tensor([s], dtype=torch.float64) for s in strays]
        )
        zero = torch.zeros(1, dtype=torch.float64)
        truth, given = Reference(zero, torch.full((1,), FAR)), zero + off
        return bool(module.as_in_float32(given, truth, zero, dtype, leaf))  # type: ignore[arg-type]

    fine = FEW * 2.0**-13
    assert judged(SPREAD_FACTOR * fine, torch.float16, 0.5)
    assert not judged(2 * SPREAD_FACTOR * fine, torch.float16, 0.5)
    assert not judged(SPREAD_FACTOR * fine, torch.float16, fine)
    assert not judged(SPREAD_FACTOR * fine, torch.float32, 0.5)
