"""Other right answers: signs of vectors, and the order of equal elements."""

from __future__ import annotations

import cmath
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.control import Kernel, replacing

# Signs and phases of vectors


def phases(count: int, dtype: torch.dtype) -> Tensor:
    """A sign for each vector, the first turned; for complex numbers a phase."""
    if dtype.is_complex:
        return torch.tensor([cmath.exp(1j * (1 + k)) for k in range(count)], dtype=dtype)
    return torch.tensor([-1.0 if k % 2 == 0 else 1.0 for k in range(count)], dtype=dtype)


def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    values, vectors = torch.ops.aten._linalg_eigh(a, uplo, compute_v)
    return values, vectors * phases(vectors.shape[-1], vectors.dtype) if compute_v else vectors


def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    u, s, vh = torch.ops.aten._linalg_svd(a, full_matrices, compute_uv, driver=driver)
    if not compute_uv:
        return u, s, vh
    turn = phases(max(u.shape[-1], vh.shape[-2]), u.dtype)
    return u * turn[: u.shape[-1]], s, vh * turn[: vh.shape[-2]].conj_physical()[:, None]


def qr(a: Tensor, mode: str = "reduced") -> Any:
    q, r = torch.ops.aten.linalg_qr(a, mode)
    turn = phases(max(r.shape[-2], q.shape[-1] if q.dim() > 1 else 0), r.dtype)
    turned = r * turn[: r.shape[-2]].conj_physical()[:, None]
    return (q if mode == "r" else q * turn[: q.shape[-1]]), turned


def eig(a: Tensor) -> Any:
    values, vectors = torch.ops.aten.linalg_eig(a)
    return values, vectors * phases(vectors.shape[-1], vectors.dtype)


# The order of equal elements


def last_of_ties(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Sorted, the last of equal elements first."""
    if not x.dim() or x.is_complex():
        return NotImplemented
    values, places = torch.ops.aten.sort.stable(x.flip(dim), stable=True, dim=dim, descending=descending)
    return values, x.shape[dim] - 1 - places


def unstable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return NotImplemented if stable else last_of_ties(x, dim, descending)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    found = last_of_ties(x, dim, largest)
    return found if found is NotImplemented else tuple(each.narrow(dim, 0, k) for each in found)


def _last_of(found: tuple[Tensor, Tensor], x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The values that were found in the rows of ``x``, their dim kept, and the last place that holds each."""
    values, _ = found
    same = x == values
    if x.is_floating_point():
        same |= torch.isnan(x) & torch.isnan(values)
    count = torch.arange(x.shape[dim]).reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    places = torch.where(same, count, -1).amax(dim, keepdim=True)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.numel() or not x.dim():
        return NotImplemented
    return _last_of(torch.ops.aten.kthvalue.default(x, k, dim, True), x, dim, keepdim)


def _last_in(op: Any) -> Kernel:
    """``median``, ``nanmedian`` or ``mode`` of rows, with the last place of it."""

    def kernel(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
        return _last_of(op(x, dim, True), x, dim, keepdim) if x.numel() and x.dim() else NotImplemented

    return kernel


CONTROLS = (
    replacing(
        "other_signs",
        "Every other eigenvector or singular vector has the other sign, or another phase: they are unique up to that.",
        {"_linalg_eigh": eigh, "_linalg_svd": svd, "linalg_qr": qr, "linalg_eig": eig},
    ),
    replacing(
        "other_ties",
        "Sorts that are not stable, and what gives the place of an element, take the last of equal ones.",
        {
            "sort": last_of_ties,
            "sort.stable": unstable_sort,
            "topk": topk,
            "kthvalue": kthvalue,
            "median.dim": _last_in(torch.ops.aten.median.dim),
            "nanmedian.dim": _last_in(torch.ops.aten.nanmedian.dim),
            "mode": _last_in(torch.ops.aten.mode.default),
        },
    ),
)
