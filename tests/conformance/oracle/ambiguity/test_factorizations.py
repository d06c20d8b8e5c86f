"""Of a matrix whose rank is lacking many factors are right, and what stands in the place of none is nothing's."""

from __future__ import annotations

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


@pytest.mark.parametrize("shape", [(12, 12), (12, 6), (6, 12)])
def test_reflectors_of_a_rank_that_is_lacking(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(shape[0], 2, generator=generator) @ torch.randn(2, shape[1], generator=generator)
    reflectors, scales = reflected(matrix)
    assert outcome("torch.geqrf", matrix, (reflectors, scales)) is Outcome.PASS
    wrong = reflectors.clone()
    wrong[0, 1] += 0.01
    assert outcome("torch.geqrf", matrix, (wrong, scales)) is Outcome.MISMATCH


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
