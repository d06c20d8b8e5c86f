"""Variants of sizes: another number of dims, sizes of 1 made larger; and what eager refuses, one of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from variant_cases import asked, case

from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.apply import apply


def shapes(given: Case, variant: str) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in asked(given, variant).args]


def test_ranks_are_a_leading_dim_less_and_one_more_of_what_has_most() -> None:
    assert shapes(case("torch.exp", torch.rand(3, 4)), "ranks") == [(4,), (2, 3, 4)]
    x, bias = torch.rand(2, 3, 4), torch.rand(4)
    for_both = [(3, 4), (4,), (2, 2, 3, 4)]  # one bias, which two of the three calls have
    assert shapes(case("torch.add", x, bias), "ranks") == [*for_both, (2, 3, 4), (2, 3, 4)]
    assert not isinstance(apply(case("torch.bmm", torch.rand(2, 3, 4), torch.rand(2, 4, 5)), "ranks"), Case)


def test_a_mask_for_all_heads_becomes_one_for_each() -> None:
    tensors = [torch.rand(2, 4, 3, 8), torch.rand(2, 4, 6, 8), torch.rand(2, 4, 6, 8), torch.rand(3, 6)]
    found = asked(case("torch.nn.functional.scaled_dot_product_attention", *tensors), "ranks")
    mask = list(found.inputs.values())[-1]
    assert mask.shape == (2, 4, 3, 6)
    assert len({tuple(head.reshape(-1).tolist()) for head in mask.reshape(-1, 3, 6)}) == 8


def test_sizes_of_1_become_larger_where_eager_takes_that() -> None:
    unshuffled = case("torch.nn.functional.pixel_unshuffle", torch.rand(1, 1, 4, 4), args=(2,))
    assert shapes(unshuffled, "odd") == [(3, 3, 4, 4)]
    with_row = case("torch.add", torch.rand(1, 4), torch.rand(3, 4))
    assert shapes(with_row, "odd") == [(1, 5), (5, 5), (3, 4), (3, 4)]


class LooksAtSizes:
    """Refuses what eager does but for the values of a matrix."""

    name = "looks at sizes"

    def compile(self, fn: Program, args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        def run(x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv_ex(x)[0]

        return run


def test_a_singular_matrix_is_among_what_has_to_be_refused() -> None:
    backend: Any = LooksAtSizes()
    found = run_case(asked(case("torch.linalg.inv", torch.eye(3) + 1), "outside"), backend)
    assert (found.outcome, found.kind) == (Outcome.MISMATCH, Kind.ACCEPTED) and "singular" in found.message
