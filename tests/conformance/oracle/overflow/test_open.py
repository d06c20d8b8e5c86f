"""A run of the overflow model that met nothing to choose stands for every other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.overflow.programs import FAMILIES, generated
from torchstone.conformance.oracle.overflow.model import RandomOverflow
from torchstone.conformance.oracle.reference.runs import OVERFLOWED_RUNS, REORDERED_RUNS, SEED, Referee

KINDS = (*REORDERED_RUNS, *OVERFLOWED_RUNS[:8])


def ordinary(x: Tensor) -> Tensor:
    """Numbers of ordinary size with the signs of others."""
    if not x.is_floating_point():
        return x
    return torch.where(x.isfinite(), x.sign() * (1 + x.abs().frexp().mantissa), 1.0).to(x.dtype)


def runs(referee: Referee, formula: int) -> Iterator[tuple[bool, bool, list[Any]]]:
    """Of each kind whether decompositions stand for ops loosely, whether there was anything to choose, the results."""
    for k, kind in enumerate(KINDS):
        mode = RandomOverflow(
            referee.dtype, SEED + k, *kind, formula, found=referee.found_in_range, calls=referee.call_precision
        )
        run = referee.twin_run(mode)
        yield kind[1] != "never", mode.open, [repr(run.problem), *run.leaves]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.nan_to_num(7.5, 8.5, 9.5), b.nan_to_num(7.5, 8.5, 9.5)) if isinstance(a, Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("formula", [0, 1])
def test_every_other_choice_gives_the_same(formula: int) -> None:
    met = {True: 0, False: 0}
    for seed in range(len(FAMILIES)):
        case = generated(seed)
        for inputs in (case.inputs, tuple(map(ordinary, case.inputs))):
            referee = Referee(case.program, inputs)
            made = list(runs(referee, formula))
            for loosely in (True, False):
                alike = [(is_open, leaves) for loose, is_open, leaves in made if loose == loosely]
                met[alike[0][0]] += 1
                for is_open, leaves in alike:
                    assert is_open or all(same(leaves, others) for _, others in alike), (seed, case.family)
    assert min(met.values()) > 3, met
