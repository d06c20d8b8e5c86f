"""The variant ``backward`` asks for no gradients that PyTorch leaves undefined, and for those beside them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.backward import backward, has_gradients
from torchstone.conformance.variants.protocol import NotApplicable


def asks(target: str, x: Tensor, *rest: Any) -> bool:
    program = Program(("x",), (Call(f"torch.{target}", (Ref("x"), *rest), {}, "r"),), Ref("r"))
    try:
        backward(Case(program, {"x": x}, "test", target, "float32"))
    except NotApplicable as error:
        assert "no gradient of such a matrix" in str(error)
        return False
    return True


def matrix(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=dtype)


def of_rank(rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return matrix(dtype)[:, :rank] @ matrix(dtype)[:rank]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("target", ["linalg.qr", "linalg.pinv", "linalg.svdvals", "linalg.lstsq"])
def test_of_a_matrix_of_full_rank(target: str, dtype: torch.dtype) -> None:
    assert asks(target, matrix(dtype), *([matrix(dtype)] if target == "linalg.lstsq" else []))


@pytest.mark.parametrize("target", ["linalg.qr", "linalg.svd"])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_factors_of_a_singular_matrix(target: str, rank: int) -> None:
    assert not asks(target, of_rank(rank) if rank else torch.zeros(5, 5))


def test_eigenvectors_of_equal_eigenvalues() -> None:
    assert asks("linalg.eigh", torch.diag(torch.arange(1.0, 5.0)))
    assert not asks("linalg.eigh", torch.eye(4))


def test_the_pseudoinverse_where_the_rank_stays_and_where_it_hangs_on_rounding() -> None:
    assert asks("linalg.pinv", of_rank(3))
    assert not asks("pinverse", of_rank(3), 1e-39)


def test_of_any_size_singular_matrices_are_left_out() -> None:
    """A larger size repeats rows."""
    program = Program(("x",), (Call("torch.linalg.svdvals", (Ref("x"),), {}, "r"),), Ref("r"))
    case = backward(Case(program, {"x": matrix()}, "test", "svdvals", "float32"), of_any_size=True)
    repeated = case.replace(inputs={"x": torch.cat([matrix(), matrix()])[:6, [0, 1, 2, 3, 4, 0]].contiguous()})
    assert has_gradients(case) and not has_gradients(repeated)


def test_kinks_of_other_ops_are_asked_for() -> None:
    assert all(asks(target, torch.zeros(3, 3)) for target in ("abs", "relu", "amax"))
