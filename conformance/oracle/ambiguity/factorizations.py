"""What stays the same whichever factors a decomposition gives.

The sign or phase of singular vectors is left open: two right answers differ. For such ops a second comparison judges
derived values instead: the matrix the factors multiply to, and that they are orthogonal. Where ``info`` says that there
is no factor or inverse, what stands in its place is nothing's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.op_traits.right_answers import FACTORIZATIONS
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Program

_RULES: Implementations[Callable[..., Any]] = Implementations(FACTORIZATIONS)
"""From the results of a call, and its arguments, to what any right factorization has in common."""


def _gram(columns: Tensor) -> Tensor:
    """The products of columns, and 1: how far columns of length 1 are from orthogonal is told in ULPs of 1."""
    return columns.mH @ columns + 1


@_RULES.register("linalg.svd")
def _svd(out: Any, source: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    left, singular, right = out
    rank = singular.shape[-1]
    product = (left[..., :rank] * singular.unsqueeze(-2)) @ right[..., :rank, :]
    return singular, product, _gram(left), _gram(right.mH)


@_RULES.register("svd")
def _torch_svd(out: Any, source: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    left, singular, right = out
    if not compute_uv:
        return out
    return _svd((left, singular, right.mH), source)


@_RULES.register("svd_lowrank", "pca_lowrank")
def _lowrank(out: Any, source: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _torch_svd(out, source)


@_RULES.register("linalg.eigh")
def _eigh(out: Any, source: Tensor, UPLO: str = "L") -> Any:
    values, vectors = out
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mH, _gram(vectors)


@_RULES.register("linalg.qr")
def _qr(out: Any, source: Tensor, mode: str = "reduced") -> Any:
    orthogonal, triangular = out
    if mode == "r":
        return triangular.mH @ triangular
    return orthogonal @ triangular, _gram(orthogonal), triangular.tril(-1)


@_RULES.register("qr")
def _torch_qr(out: Any, source: Tensor, some: bool = True) -> Any:
    return _qr(out, source)


@_RULES.register("geqrf")
def _geqrf(out: Any, source: Tensor) -> Any:
    reflectors, scales = out
    rank = scales.shape[-1]
    orthogonal = torch.linalg.householder_product(reflectors[..., :rank], scales)
    return orthogonal @ reflectors.triu()[..., :rank, :], _gram(orthogonal)


@_RULES.register("linalg.cholesky_ex")
def _where_there_is_one(out: Any, source: Tensor, *args: Any, **kwargs: Any) -> Any:
    matrix, info = out
    return torch.where((info == 0)[..., None, None], matrix, 0.0), info


@_RULES.register("linalg.inv_ex", "linalg.solve_ex")
def _by_elimination(out: Any, source: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Which pivot is the one that is 0 hangs on which rows were the others."""
    result, info = out
    found = info == 0
    return torch.where(found.reshape(*found.shape, *[1] * (result.dim() - found.dim())), result, 0.0), found


@_RULES.register("linalg.lu")
def _lu(out: Any, source: Tensor, *, pivot: bool = True) -> Any:
    rows, lower, upper = out
    product = lower @ upper
    if not pivot:
        return product, lower.triu(), upper.tril(-1)
    largest = 2**0.5 if lower.is_complex() else 1.0  # of a complex pivot LAPACK takes the sum of the parts
    return rows @ product, lower.triu(), upper.tril(-1), lower.abs().clamp(min=largest), rows @ rows.mT


@_RULES.register("linalg.lu_factor", "linalg.lu_factor_ex", "lu")
def _lu_factor(out: Any, source: Tensor, pivot: bool = True, *args: Any, **kwargs: Any) -> Any:
    factors, pivots, *infos = out
    if not bool(((pivots >= 1) & (pivots <= factors.shape[-2])).all()):
        return out
    unpacked = torch.lu_unpack(factors, pivots, unpack_pivots=pivot)
    return _lu(unpacked, source, pivot=pivot), [info == 0 for info in infos]


def derivation(program: Program) -> Callable[[tuple[Tensor, ...], Any], Any] | None:
    """For a program of one call to such an op: from its inputs and results to what must agree. ``None`` otherwise."""
    if len(program.calls) != 1 or program.outputs != Ref(program.calls[0].result):
        return None
    call = program.calls[0]
    name = call.target.removeprefix("torch.").removeprefix("Tensor.")
    rule = _RULES.get(name)
    if rule is None:
        return None

    def derive(inputs: tuple[Tensor, ...], out: Any) -> Any:
        args, kwargs = program.fill((call.args, call.kwargs), inputs)
        return rule(out, *args, **kwargs)

    return derive
