"""Matrices by other methods than LAPACK's, and other right answers of the same method."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.control import replacing

RANGE = 2.0**50
"""Numbers between its reciprocal and it, the largest of a matrix."""
NEARLY = 2.0**-8
"""A matrix is nearly singular where rounding its elements changes its inverse by more than such a part."""
MOST = 200
"""Rows of a matrix."""


def _plain(a: Tensor) -> bool:
    """Whether it is of matrices that a method is for: the others are left to eager. Squares stay within the range."""
    if a.dim() < 2 or not a.numel():
        return False
    largest = float(a.abs().max())
    return 1 / RANGE < largest < RANGE


def eliminated_by_the_last(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Gaussian elimination, the pivot the last of the largest, where LAPACK's is the first.

    A matrix that is singular by one of the two alone is left to eager: rounding decides that.
    """
    if not pivot or not _plain(a):
        return NotImplemented
    found = [_eliminated(each) for each in a.reshape(-1, *a.shape[-2:])]
    factors, pivots, info = (torch.stack(part) for part in zip(*found, strict=True))
    batch = a.shape[:-2]
    if not torch.equal(info.reshape(batch) == 0, torch.ops.aten.linalg_lu_factor_ex(a)[2] == 0):
        return NotImplemented
    return factors.reshape(a.shape), pivots.reshape(*batch, -1), info.reshape(batch)


def factors_by_the_last(a: Tensor, *, pivot: bool = True) -> Any:
    found = eliminated_by_the_last(a, pivot=pivot)
    return found if found is NotImplemented else torch.lu_unpack(*found[:2])


def _eliminated(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, pivots, info = matrix.clone(), [], 0
    for k in range(min(a.shape)):
        row = len(a) - 1 - int(a[k:, k].abs().flip(0).argmax())
        pivots.append(row + 1)
        a[[k, row]] = a[[row, k]]
        if a[k, k] == 0:
            info = info or k + 1
            continue
        a[k + 1 :, k] /= a[k, k].clone()
        a[k + 1 :, k + 1 :] -= torch.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, torch.tensor(pivots, dtype=torch.int32), torch.tensor(info, dtype=torch.int32)


def eigenvalues_from_the_last(a: Tensor) -> Any:
    values, vectors = torch.ops.aten.linalg_eig(a)
    return values.flip(-1), vectors.flip(-1)


def inverse_by_reflections(a: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse of R times Q^H; a matrix that is nearly singular is left to eager."""
    if not _plain(a) or a.shape[-1] > MOST or bool((torch.linalg.cond(a) * torch.finfo(a.dtype).eps > NEARLY).any()):
        return NotImplemented
    info = torch.linalg.inv_ex(a).info
    q, r = torch.linalg.qr(a)
    return torch.linalg.solve_triangular(r, q.mH, upper=True), info


def pseudoinverse_of_the_transpose(a: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    if hermitian or not _plain(a):
        return NotImplemented
    turned = torch.ops.aten.linalg_pinv.atol_rtol_tensor(a.mT.contiguous(), atol=atol, rtol=rtol)
    return turned.mT.contiguous()


_METHOD = "Inverses and factors are as far off as the largest element of the matrix, by whatever method"
CONTROLS = (
    replacing(
        "last_pivots",
        "Any of the largest rows may be the pivot of an elimination.",
        {"linalg_lu_factor_ex": eliminated_by_the_last, "linalg_lu": factors_by_the_last},
    ),
    replacing(
        "reversed_eigenvalues",
        "Eigenvalues of a matrix that is not symmetric come in any order.",
        {"linalg_eig": eigenvalues_from_the_last},
    ),
    replacing("inverse_by_reflections", f"{_METHOD}: reflections.", {"linalg_inv_ex": inverse_by_reflections}),
    replacing(
        "transposed_pseudoinverse",
        f"{_METHOD}: of the transpose.",
        {"linalg_pinv.atol_rtol_tensor": pseudoinverse_of_the_transpose},
    ),
)
