"""Singular vectors and eigenvectors of the float64 runs in eager's own signs and phases.

A factorization leaves them open (``U diag(S) Vh`` stays what it is when a column of U takes a phase and its row of Vh
the opposite one), and LAPACK's choice turns with the last bit of the input. What a program makes of the vectors turns
with it, gradients most of all: a float64 run of the other choice says nothing of this one. So eager's factors are
noted, and each float64 factorization takes the phases that bring it nearest to them. That is a right factorization
still, to the last bit where the phase is a sign.

A backend has a choice of its own. What it gives shows it, where that is columns beside eager's that differ by phases:
eager with these phases is as right as eager without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode

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
        vectors, turn = _TURNED[func]
        mine, its = vectors(out), vectors(parts)
        return turn(out, _phase(mine, its.to(mine.dtype))) if mine.numel() else out  # there are none of values only


def _phase(mine: Tensor, noted: Tensor) -> Tensor:
    """What each column times, to be as near to the noted one as it can be: [..., 1, columns]; 1 where nothing says."""
    # Conjugated in memory: below a dispatch mode nobody looks at the conjugate bit.
    towards = (mine.conj_physical() * noted).sum(-2, keepdim=True)
    return torch.where((towards.abs() > 0) & torch.isfinite(towards.abs()), torch.sgn(towards), 1.0)


def turns(noted: list[Any], expected: list[Any], actual: list[Any]) -> Iterator[list[Any]]:
    """Eager's factorizations with the phases that a backend's results have beside eager's, by each of the results.

    Of several factorizations all take them, or the last alone, whose vectors a result is made of: what undoes the
    phases of those before it (U of ``svd(Q^H A)`` in ``Q U``) mixes them, and leaves others than were asked for.
    """
    for mine, given in zip(expected, actual, strict=True):
        if not (_columns(mine) and _columns(given)) or mine.shape != given.shape or mine.dtype != given.dtype:
            continue
        phase = _phase(mine.resolve_conj(), given.resolve_conj())
        turned = [(func, _turned(func, parts, phase)) for func, parts in noted]
        fitting = [at for at, (one, other) in enumerate(zip(turned, noted, strict=True)) if one[1] is not other[1]]
        if fitting and bool((phase != 1).any()):
            yield turned
            if len(fitting) > 1:
                yield [turned[at] if at == fitting[-1] else noted[at] for at in range(len(noted))]


def _columns(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.dim() < 2:
        return False
    return value.is_floating_point() or value.is_complex()


def _turned(func: Any, parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    """A factorization with other phases; itself if they are not of as many vectors, or of another dtype."""
    vectors, turn = _TURNED[func]
    mine = vectors(parts)
    if mine.dtype != phase.dtype or not mine.numel() or (*mine.shape[:-2], 1, mine.shape[-1]) != phase.shape:
        return parts
    return turn(parts, phase)


def _turn_svd(parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    left, singular, right = parts
    count = singular.shape[-1]
    left, right = left.clone(), right.clone()
    left[..., :count] *= phase
    right[..., :count, :] *= phase.conj_physical().mT
    return left, singular, right


def _first(parts: tuple[Tensor, ...]) -> Tensor:
    """The columns of Q that R has a row for: none where only R was asked for, its Q is empty."""
    q, r = parts
    return q[..., : min(r.shape[-2:])] if q.dim() >= 2 else q


def _turn_qr(parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    q, r = (part.clone() for part in parts)
    count = phase.shape[-1]
    q[..., :count] *= phase
    r[..., :count, :] *= phase.conj_physical().mT
    return q, r


_TURNED: dict[Any, tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]] = {
    aten._linalg_svd.default: (lambda parts: parts[0][..., : parts[1].shape[-1]], _turn_svd),
    aten._linalg_eigh.default: (lambda parts: parts[1], lambda parts, phase: (parts[0], parts[1] * phase)),
    aten.linalg_qr.default: (_first, _turn_qr),
}
"""The columns whose phases are free, and the factorization with these times others."""
