"""The sign of an infinite part beside a NaN, where it depends on what the NaN stands for.

    asin(inf + NaN j):     NaN + inf j or NaN - inf j, for asin(inf + y j) is pi / 2 + inf j with the sign of y
    exp(inf + inf j):      inf + NaN j or -inf + NaN j, for the cosine of infinity has either sign
    asinh(inf + NaN j):    inf + NaN j, for asinh(inf + y j) is inf for every y

C99 (annex G) calls most of these signs unspecified; PyTorch documents none of them, and its kernels for the CPU and for
CUDA differ. So each function is asked what it gives for finite numbers in place of the NaN, or (of the same sign) in
place of an infinity where that makes the NaN. Where the other part becomes both infinities, either is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise_where_shown

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee

STAND_INS = (1.0, 2.0, 4.0)
"""Sizes that have sines and cosines of both signs."""


class OtherInfinities(ComputingMode):
    """Gives the other infinity wherever a function of one complex tensor leaves its sign open. ``met`` says that there
    was such a step."""

    def __init__(self, met: list[Any]) -> None:
        super().__init__()
        self._met = met

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operand = _operand(func, args)
        out = func(*args, **kwargs)
        if operand is None or not isinstance(out, Tensor) or not out.is_complex() or out.shape != operand.shape:
            return out
        parts = _parts(out)
        beside_nan = torch.isinf(parts) & torch.isnan(parts.flip(-1))
        if not bool(beside_nan.any()) or "out" in kwargs:
            return out
        flip = beside_nan & _depends_on_nan(partial(_values, func, args[1:], kwargs), operand)
        if bool(flip.any()):
            self._met.append(func)
            out.copy_(torch.view_as_complex(torch.where(flip, -parts, parts)))
        return out


def _operand(func: Any, args: Any) -> Tensor | None:
    """The operand of a function of one complex tensor, element by element, as it is before the call."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if torch.Tag.pointwise not in func.tags or len(tensors) != 1 or tensors[0] is not args[0]:
        return None
    operand = tensors[0]
    if not operand.is_complex() or operand.layout is not torch.strided or bool(torch.isfinite(operand).all()):
        return None
    return operand.clone()


def _values(func: Any, rest: Any, kwargs: Any, parts: Tensor) -> Tensor:
    return _parts(func(torch.view_as_complex(parts), *rest, **kwargs))


def _depends_on_nan(values: Callable[[Tensor], Tensor], operand: Tensor) -> Tensor:
    """Which parts of the results are either infinity, by the number in place of one part of the operand."""
    given = _parts(operand)
    unknown = torch.where(given.isnan().any(-1, keepdim=True), given.isnan(), given.isinf())
    stand_ins = [size * torch.where(given.isnan(), sign, given.sgn()) for size in STAND_INS for sign in (1.0, -1.0)]
    either = torch.zeros(given.shape, dtype=torch.bool)
    for place in torch.eye(2, dtype=torch.bool):
        found = torch.stack([values(torch.where(unknown & place, number, given)) for number in stand_ins])
        either |= (found == math.inf).any(0) & (found == -math.inf).any(0)
    return either


def _parts(values: Tensor) -> Tensor:
    return torch.view_as_real(values.resolve_conj().resolve_neg().contiguous())


def infinity_sign_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with the other infinities, where those are as right and the backend has what follows from them.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where no such sign is open.
    """
    met: list[Any] = []
    other = referee.inside(lambda: OtherInfinities(met))
    if other.eager.leaves and met:
        yield from otherwise_where_shown(other, expected, actual)
