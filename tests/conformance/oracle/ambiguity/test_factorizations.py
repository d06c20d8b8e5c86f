"""Of a matrix whose rank is lacking many factors are right, and what stands in the place of none is nothing's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref


def outcome(target: str, matrix: Tensor, given: Any) -> Outcome:
    program = Program(("x",), (Call(target, (Ref("x"),), {}, "r"),), Ref("r"))
    return judge(program, (matrix,), Observed(program(matrix), (matrix,)), Observed(given, (matrix,))).outcome


def reflected(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Householder's reflections, column by column: another order of sums than LAPACK's."""
    a, scales = matrix.clone(), torch.zeros(min(matrix.shape))
    for j in range(len(scales)):
        column = a[j:, j].clone()
        rest = torch.linalg.vector_norm(column[1:])
        if rest == 0:
            continue
        beta = -torch.copysign(torch.hypot(column[0], rest), column[0])
        scales[j] = (beta - column[0]) / beta
        v = column / (column[0] - beta)
        v[0] = 1
        a[j:, j + 1 :] -= scales[j] * torch.outer(v, v @ a[j:, j + 1 :])
        a[j, j], a[j + 1 :, j] = beta, v[1:]
    return a, scales


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(12, 12), (12, 6), (6, 12)])
def test_reflectors_of_a_rank_that_is_lacking(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(shape[0], 2, generator=generator) @ torch.randn(2, shape[1], generator=generator)
    reflectors, scales = reflected(matrix)
    assert outcome("torch.geqrf", matrix, (reflectors, scales)) is Outcome.PASS
    wrong = reflectors.clone()
    wrong[0, 1] += 0.01
    assert outcome("torch.geqrf", matrix, (wrong, scales)) is Outcome.MISMATCH


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["torch.linalg.cholesky_ex", "torch.linalg.inv_ex"])
def test_what_stands_where_there_is_none(target: str) -> None:
    there, none = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    none = -none if "cholesky" in target else none
    matrix = torch.stack([there, none])
    function = torch.linalg.cholesky_ex if "cholesky" in target else torch.linalg.inv_ex
    right, info = function(matrix)
    assert info.tolist()[0] == 0 and info.tolist()[1] > 0
    other = torch.stack([right[0], torch.full((2, 2), float("nan"))])
    assert outcome(target, matrix, (other, info)) is Outcome.PASS
    assert outcome(target, matrix, (torch.stack([right[0] + 0.1, right[1]]), info)) is Outcome.MISMATCH
    assert outcome(target, matrix, (other, torch.zeros_like(info))) is Outcome.MISMATCH


def test_columns_that_are_not_orthogonal() -> None:
    matrix = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    assert outcome("torch.linalg.qr", matrix, torch.linalg.qr(matrix)) is Outcome.PASS
    q, _ = torch.linalg.qr(matrix)
    skewed = q.clone()
    skewed[:, 0] += 1e-4 * q[:, 1]
    mended = torch.linalg.pinv(skewed) @ matrix  # the product is right
    assert outcome("torch.linalg.qr", matrix, (skewed, mended)) is Outcome.MISMATCH


def eliminated(matrix: Tensor, choose: Callable[[Tensor], int]) -> tuple[Tensor, Tensor]:
    """Gaussian elimination in which the row of the pivot is chosen of a column's numbers."""
    a, pivots = matrix.clone(), []
    for k in range(min(a.shape)):
        row = k + choose(a[k:, k])
        pivots.append(row + 1)
        a[[k, row]] = a[[row, k]]
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= torch.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, torch.tensor(pivots, dtype=torch.int32)


def last_of_largest(column: Tensor) -> int:
    return len(column) - 1 - int(column.abs().flip(0).argmax())


TIES = [torch.randint(-1, 2, (7, 7), generator=torch.Generator().manual_seed(seed)).float() for seed in range(20)]
OF_FULL_RANK = [matrix for matrix in TIES if torch.linalg.matrix_rank(matrix) == 7]


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize("matrix", OF_FULL_RANK[:2])
def test_any_of_the_largest_rows_may_be_the_pivot(matrix: Tensor) -> None:
    factors, pivots = eliminated(matrix, last_of_largest)
    assert not torch.equal(pivots, torch.linalg.lu_factor(matrix).pivots)
    info = torch.tensor(0, dtype=torch.int32)
    assert outcome("torch.linalg.lu_factor", matrix, (factors, pivots)) is Outcome.PASS
    assert outcome("torch.linalg.lu_factor_ex", matrix, (factors, pivots, info)) is Outcome.PASS
    assert outcome("torch.lu", matrix, (factors, pivots)) is Outcome.PASS
    assert outcome("torch.linalg.lu", matrix, tuple(torch.lu_unpack(factors, pivots))) is Outcome.PASS
    assert outcome("torch.linalg.lu_factor_ex", matrix, (factors, pivots, info + 1)) is Outcome.MISMATCH


@pytest.mark.torture
@pytest.mark.parametrize("matrix", OF_FULL_RANK[:2])
def test_what_no_elimination_gives(matrix: Tensor) -> None:
    factors, pivots = eliminated(matrix, last_of_largest)
    wrong = factors.clone()
    wrong[1, 4] += 0.01
    assert outcome("torch.linalg.lu_factor", matrix, (wrong, pivots)) is Outcome.MISMATCH
    assert outcome("torch.linalg.lu_factor", matrix, (factors, pivots - 1)) is Outcome.MISMATCH
    rows, lower, upper = torch.lu_unpack(factors, pivots)
    assert outcome("torch.linalg.lu", matrix, (rows.mT @ rows.mT, lower, upper)) is Outcome.MISMATCH
    doubled = torch.diag(torch.tensor([1.0, 2, 1, 1, 1, 1, 1]))
    assert outcome("torch.linalg.lu", matrix, (rows, lower @ doubled, doubled.inverse() @ upper)) is Outcome.MISMATCH


def test_a_pivot_that_is_not_the_largest() -> None:
    matrix = torch.randn(6, 6, generator=torch.Generator().manual_seed(2))
    factors, pivots = eliminated(matrix, lambda column: 0)
    assert (factors.tril(-1).abs() > 1).any()
    assert outcome("torch.linalg.lu_factor", matrix, (factors, pivots)) is not Outcome.PASS


def test_the_largest_of_complex_pivots() -> None:
    matrix = torch.randn(6, 6, dtype=torch.complex64, generator=torch.Generator().manual_seed(2))
    by_modulus = eliminated(matrix, lambda column: int(column.abs().argmax()))
    assert outcome("torch.linalg.lu_factor", matrix, by_modulus) is Outcome.PASS


GENERAL = [torch.randn(5, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


@pytest.mark.torture
@pytest.mark.parametrize(
    "matrix", [torch.stack(GENERAL[:2]), *(pytest.param(each, marks=pytest.mark.torture) for each in GENERAL)]
)
def test_eigenvalues_come_in_any_order(matrix: Tensor) -> None:
    values, vectors = torch.linalg.eig(matrix)
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted, of_them = values[..., order], vectors[..., order]
    assert outcome("torch.linalg.eigvals", matrix, permuted) is Outcome.PASS
    assert outcome("torch.linalg.eig", matrix, (permuted, of_them)) is Outcome.PASS
    assert outcome("torch.linalg.eig", matrix, (permuted, -of_them)) is Outcome.PASS
    assert outcome("torch.linalg.eig", matrix, (permuted, vectors)) is Outcome.MISMATCH
    twice = permuted.clone()
    twice[..., 0] = twice[..., 1]
    assert outcome("torch.linalg.eigvals", matrix, twice) is Outcome.MISMATCH
