"""What PyTorch leaves open in a result, and what stays the same whichever way a backend takes.

The order of equal elements in an unstable sort, the sign or phase of singular vectors: two right answers differ. For
such ops a second comparison judges derived values instead: the elements the indices point at, the matrix the factors
multiply to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.literals import Ref
from torchstone.conformance.program import Program


def _pick(source: Tensor, dim: int, indices: Tensor) -> Tensor:
    """The elements that indices into one dim point at; raises when one is out of bounds."""
    return source.gather(dim, indices)


def _sort(out: Any, source: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False) -> Any:
    values, indices = out
    if stable:
        return out
    return values, _pick(source, dim, indices), indices.sort(dim).values


def _argsort(out: Tensor, source: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    if stable:
        return out
    return _pick(source, dim, out), out.sort(dim).values


def _topk(out: Any, source: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = out
    picked = _pick(source, dim, indices)
    ordered = indices.sort(dim).values
    distinct = ordered.dim() == 0 or bool((ordered.diff(dim=dim) != 0).all())
    if not sorted:
        values, picked = values.sort(dim).values, picked.sort(dim).values
    return values, picked, torch.tensor(distinct)


def _one_index(out: Any, source: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    if isinstance(out, Tensor):
        return out
    values, indices = out
    kept = indices if keepdim or source.dim() == 0 else indices.unsqueeze(dim)
    picked = _pick(source, dim, kept)
    return values, picked if keepdim or source.dim() == 0 else picked.squeeze(dim)


def _kthvalue(out: Any, source: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _one_index(out, source, dim, keepdim)


def _mode(out: Any, source: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Eager sorts by ``<``, which is no order where there are NaN: any element may come of that, but an element."""
    values, picked = _one_index(out, source, dim, keepdim)
    settled = ~(source != source).any(dim, keepdim=keepdim) if source.dim() else source == source
    there = (values == picked) | ((values != values) & (picked != picked))
    return torch.where(settled, values, 0), there


def _gram(columns: Tensor) -> Tensor:
    return columns.mH @ columns


def _svd(out: Any, source: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    left, singular, right = out
    rank = singular.shape[-1]
    product = (left[..., :rank] * singular.unsqueeze(-2)) @ right[..., :rank, :]
    return singular, product, _gram(left), _gram(right.mH)


def _torch_svd(out: Any, source: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    left, singular, right = out
    if not compute_uv:
        return out
    return _svd((left, singular, right.mH), source)


def _eigh(out: Any, source: Tensor, UPLO: str = "L") -> Any:
    values, vectors = out
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mH, _gram(vectors)


def _qr(out: Any, source: Tensor, mode: str = "reduced") -> Any:
    orthogonal, triangular = out
    if mode == "r":
        return _gram(triangular)
    return orthogonal @ triangular, _gram(orthogonal), triangular.tril(-1)


def _torch_qr(out: Any, source: Tensor, some: bool = True) -> Any:
    return _qr(out, source)


_TABLE: dict[str, Callable[..., Any]] = {
    "sort": _sort,
    "argsort": _argsort,
    "topk": _topk,
    "kthvalue": _kthvalue,
    "median": _one_index,
    "nanmedian": _one_index,
    "mode": _mode,
    "linalg.svd": _svd,
    "svd": _torch_svd,
    "linalg.eigh": _eigh,
    "linalg.qr": _qr,
    "qr": _torch_qr,
}


def derivation(program: Program) -> Callable[[tuple[Tensor, ...], Any], Any] | None:
    """For a program of one call to such an op: from its inputs and results to what must agree. ``None`` otherwise."""
    if len(program.calls) != 1 or program.outputs != Ref(program.calls[0].result):
        return None
    call = program.calls[0]
    name = call.target.removeprefix("torch.").removeprefix("Tensor.")
    rule = _TABLE.get(name)
    if rule is None:
        return None

    def derive(inputs: tuple[Tensor, ...], out: Any) -> Any:
        args, kwargs = program.fill((call.args, call.kwargs), inputs)
        return rule(out, *args, **kwargs)

    return derive
