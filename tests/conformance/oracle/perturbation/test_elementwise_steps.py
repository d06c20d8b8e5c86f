"""An op of elementwise steps has the rounding of its steps, though no tag of PyTorch's calls it pointwise."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import compare
from torchstone.conformance.program.program import Call, Program, Ref

SOFT_MARGIN = "torch.ops.aten.soft_margin_loss_backward"
"""Eager divides exponentials; PyTorch's own decomposition takes 1 from a sigmoid near 1."""


@pytest.mark.torture
@pytest.mark.parametrize(
    ("ulps_of_one", "outcomes"),
    [
        (0.0, ("pass",)),
        (0.5, ("pass", "ill-conditioned")),
        (16.0, ("mismatch",)),
        pytest.param(-16.0, ("mismatch",), marks=pytest.mark.torture),
    ],
)
def test_a_decomposition_that_cancels_is_right_and_no_more_than_that(
    ulps_of_one: float, outcomes: tuple[str, ...]
) -> None:
    names = ("g", "x", "y")
    program = Program(names, (Call(SOFT_MARGIN, (*map(Ref, names), 0), {}, "r"),), Ref("r"))
    x = torch.tensor([5.0, 12.0, 15.3, 14.0])
    right = -torch.sigmoid(-x.double())
    given = (right + ulps_of_one * torch.finfo(torch.float32).eps).float()
    found = compare(program, lambda g, x, y: given, torch.ones(4), x, torch.ones(4))
    assert found.outcome in outcomes, found
