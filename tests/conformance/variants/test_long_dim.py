"""What is made of numbers alone is made large by one of them."""

from __future__ import annotations

from typing import Any

import pytest
from variant_cases import asked

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.long_dim import LARGE_LENGTHS, MOST
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import VARIANTS


def of_numbers(target: str, *args: Any) -> Case:
    return Case(Program((), (Call(target, args, {}, "r"),), Ref("r")), {}, "guide", target, "float32")


@pytest.mark.parametrize(
    "target, args",
    [
        ("torch.arange", (0, 5, 0.3)),
        ("torch.linspace", (-2.0, 1.0, 7)),
        ("torch.full", ((3, 5), 2.0)),
        ("torch.tril_indices", (3, 4)),
    ],
)
def test_a_number_makes_results_large(target: str, args: tuple[Any, ...]) -> None:
    changed = asked(of_numbers(target, *args), "large")
    assert LARGE_LENGTHS[-1] <= changed.program().numel() <= MOST


def test_no_number_makes_one_element_many() -> None:
    with pytest.raises(NotApplicable, match="no number"):
        VARIANTS.load("large").make(of_numbers("torch.scalar_tensor", 3.0))
