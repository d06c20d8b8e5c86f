"""Where the sign of a NaN is part of the result: of programs whose every step moves numbers, or looks at their bits.

``signbit`` and ``copysign`` are operations on the sign bit, in IEEE 754 and in PyTorch's documentation. What sign the
NaN of any other operation has is open: it is one in eager's vectors and another in its loops, or depends on the
processor. So it is of a cast, of the larger of two numbers, and of ``neg`` and ``abs``: PyTorch documents a product by
-1 and the absolute value, and PTX leaves open which NaN either gives on a GPU. A lazy negation is one, too. Where a
program asks for the sign of such a NaN, either answer is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise_where_shown
from torchstone.conformance.oracle.op_traits.signs import KEEPS_SIGN_OF_NAN, READS_SIGN_OF_NAN

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee

_MADE_WITH_SIGN = frozenset({torch.float16, torch.float32, torch.float64})
"""The dtypes to which eager's casts keep the sign of NaN."""


def keeps_nan_signs(func: Any) -> bool:
    """Whether the signs of an op's operands decide, alone, those of the NaN it gives. In-place forms do not count."""
    name = base_name(func)
    return (func.is_view and name != "_neg_view") or KEEPS_SIGN_OF_NAN.has(name)


def different_nan_signs(actual: Tensor, expected: Tensor) -> Tensor:
    """Where both are NaN of different signs, in the dtypes to which casts keep it."""
    if expected.dtype not in _MADE_WITH_SIGN or actual.dtype != expected.dtype:
        return torch.zeros(expected.shape, dtype=torch.bool)
    return expected.isnan() & actual.isnan() & (torch.signbit(actual) != torch.signbit(expected))


class FlipNanSigns(ComputingMode):
    """Shows each step that reads the sign of a NaN the other one. ``met`` says that there was such a step."""

    def __init__(self, met: list[Any]) -> None:
        super().__init__()
        self._met = met

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not READS_SIGN_OF_NAN.holds(func):
            return func(*args, **(kwargs or {}))
        *rest, asked = args
        if isinstance(asked, Tensor) and asked.dtype.is_floating_point and bool(asked.isnan().any()):
            self._met.append(func)
            flipped = torch.copysign(asked, -torch.copysign(torch.ones_like(asked), asked))
            asked = torch.where(asked.isnan(), flipped, asked)
        return func(*rest, asked, **(kwargs or {}))


def nan_sign_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with the other signs, where those are as right and the backend has what follows from them.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where eager's signs are the only ones.
    """
    if referee.keeps_nan_signs:
        return
    met: list[Any] = []
    flipped = referee.inside(lambda: FlipNanSigns(met))
    if flipped.eager.leaves and met:
        yield from otherwise_where_shown(flipped, expected, actual)
