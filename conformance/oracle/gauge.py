"""Singular vectors and eigenvectors of the float64 runs in eager's own signs and phases.

A factorization leaves them open (``U diag(S) Vh`` stays what it is when a column of U takes a phase and its row of Vh
the opposite one), and LAPACK's choice turns with the last bit of the input. What a program makes of the vectors turns
with it, gradients most of all: a float64 run of the other choice says nothing of this one. So eager's factors are
noted, and each float64 factorization takes the phases that bring it nearest to them. That is a right factorization
still, to the last bit where the phase is a sign.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Factors(TorchDispatchMode):
    """Notes the results of the factorizations whose vectors have a free phase, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, tuple[Tensor, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _TURNED:
            self.found.append((func, tuple(part.clone() for part in out)))
        return out


class Aligned(TorchDispatchMode):
    """Gives each factorization the phases of the one noted in its place."""

    def __init__(self, noted: list[tuple[Any, tuple[Tensor, ...]]]) -> None:
        super().__init__()
        self._noted = iter(noted)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func not in _TURNED:
            return out
        noted, parts = next(self._noted, (None, ()))
        if noted is not func or any(a.shape != b.shape for a, b in zip(out, parts, strict=True)):
            return out
        return _TURNED[func](out, tuple(part.to(mine.dtype) for part, mine in zip(parts, out, strict=True)))


def _phase(mine: Tensor, noted: Tensor) -> Tensor:
    """What each column times, to be as near to the noted one as it can be: [..., 1, columns]; 1 where nothing says."""
    # Conjugated in memory: below a dispatch mode nobody looks at the conjugate bit.
    towards = (mine.conj_physical() * noted).sum(-2, keepdim=True)
    return torch.where((towards.abs() > 0) & torch.isfinite(towards.abs()), torch.sgn(towards), 1.0)


def _svd(out: tuple[Tensor, ...], noted: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    left, singular, right = out
    count = singular.shape[-1]
    if not count or not left.numel() or not right.numel():  # values only
        return out
    phase = _phase(left[..., :count], noted[0][..., :count])
    left, right = left.clone(), right.clone()
    left[..., :count] *= phase
    right[..., :count, :] *= phase.conj_physical().mT
    return left, singular, right


def _eigh(out: tuple[Tensor, ...], noted: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    values, vectors = out
    return (values, vectors * _phase(vectors, noted[1])) if vectors.numel() else out


_TURNED = {aten._linalg_svd.default: _svd, aten._linalg_eigh.default: _eigh}
