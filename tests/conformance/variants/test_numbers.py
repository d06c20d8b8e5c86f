"""Numbers that are read from tensors as a program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.apply import apply

X = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)


def test_fractions_and_whole_numbers_are_read_each_by_themselves() -> None:
    found = asked(case("torch.add", X, X + 1, alpha=2), "numbers")
    assert [call.target for call in found.program.calls[:2]] == ["torch.Tensor.item", "torch.add"]
    assert found.inputs["n0"].dtype is torch.int64 and int(found.inputs["n0"]) == 2
    assert run_case(found, load("eager")).outcome is Outcome.PASS


def test_numbers_that_a_sample_leaves_out_are_read_too() -> None:
    found = asked(case("torch.nn.functional.elu", X), "numbers")
    assert any(tensor.dtype is torch.float64 and not tensor.dim() for tensor in found.args)


def test_a_program_without_numbers_has_none_to_read() -> None:
    assert "no number" in getattr(apply(case("torch.exp", X), "numbers"), "reason", "")


class HoldsTheFirstNumber:
    """Takes the number that the example had for granted."""

    name = "holds the first number"

    def compile(self, fn: Program, args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        held = [tensor.clone() if tensor.dim() == 0 else None for tensor in args]

        def run(*given: torch.Tensor) -> Any:
            return fn(*(mine if one is None else one for one, mine in zip(held, given, strict=True)))

        return run


def test_a_compiler_that_holds_the_number_of_the_example_is_found() -> None:
    backend: Any = HoldsTheFirstNumber()
    found = run_case(asked(case("torch.add", X, X + 1, alpha=2), "numbers"), backend)
    assert found.outcome is Outcome.MISMATCH and "other values" in str(found.evidence)
