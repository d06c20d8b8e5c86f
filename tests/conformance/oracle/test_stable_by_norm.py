"""Eigenvalues and singular values have errors of an ULP of the largest, however small they are; and no larger ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import compare, one
from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome

PERMUTED = torch.tensor([2, 0, 3, 1])


def graded(dtype: torch.dtype) -> Tensor:
    """A symmetric matrix of full rank whose elements are of many sizes."""
    sizes = torch.tensor([1.0, 1e-2, 1e-3, 3e-4], dtype=dtype)
    row = torch.tensor([[2.0, 0.7, 0.3, 0.9], [0.7, 3.0, 0.2, 0.4], [0.3, 0.2, 1.0, 0.8], [0.9, 0.4, 0.8, 4.0]])
    return row.to(dtype) * sizes * sizes[:, None]


def reordered(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same of the matrix with rows and columns in another order."""
    return lambda x: function(x[PERMUTED][:, PERMUTED])


FUNCTIONS = {"linalg.eigvalsh": torch.linalg.eigvalsh, "linalg.svdvals": torch.linalg.svdvals}


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_small_ones_are_off_by_ulps_of_the_large_one(name: str, dtype: torch.dtype) -> None:
    x = graded(dtype)
    finding = compare(one(name), reordered(FUNCTIONS[name]), x)
    assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), finding


@pytest.mark.few(2)
@pytest.mark.parametrize(("at", "name"), covering(range(4), [*FUNCTIONS], strength=1))
def test_none_is_off_by_more(name: str, at: int) -> None:
    def wrong(x: Tensor) -> Tensor:
        values = FUNCTIONS[name](x.double())
        values[at] += 1e-4 * values.abs().max()
        return values.float()

    assert compare(one(name), wrong, graded(torch.float32)).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_of_a_matrix_of_equal_sizes_all_keep_their_digits() -> None:
    x = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])) + 0.1

    def wrong(x: Tensor) -> Tensor:
        return torch.linalg.eigvalsh(x) * torch.tensor([1 + 2e-5, 1, 1, 1])

    assert compare(one("linalg.eigvalsh"), wrong, x).outcome is Outcome.MISMATCH
