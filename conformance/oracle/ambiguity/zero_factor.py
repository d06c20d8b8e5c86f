"""A product that is multiplied by ``alpha=0``: left out, or infinity times 0.

Of ``beta=0`` PyTorch promises that NaN and infinities of the operand are ignored, of ``alpha=0`` it promises nothing.
Eager leaves the product out where BLAS computes it (``addmm`` in float32), and multiplies it where a kernel of its own
does (``addmm`` in bfloat16, ``addmv`` of complex numbers, ``baddbmm`` of small matrices). PyTorch's decompositions
multiply. So either answer is right, of each element.

    addmm(c, a, b, alpha=0), with a NaN in a:    c, or c + NaN wherever the product a b is NaN or infinite
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.conformance.oracle.equality import same_values
from torchstone.conformance.oracle.op_traits.right_answers import SCALES_PRODUCT
from torchstone.conformance.oracle.pytree import flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


class ScaledByZero(TorchDispatchMode):
    """Leaves out each product that is multiplied by 0, or (``multiplied``) multiplies it. ``met`` says that there was
    one which is not finite."""

    def __init__(self, multiplied: bool, met: list[Any]) -> None:
        super().__init__()
        self._multiplied = multiplied
        self._met = met

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not SCALES_PRODUCT.holds(func) or kwargs.get("alpha", 1) != 0 or "out" in kwargs or len(args) < 3:
            return func(*args, **kwargs)
        base, *factors = args[:3]
        product = func(torch.zeros_like(base), *factors, *args[3:], **(kwargs | {"alpha": 1, "beta": 0}))
        out = func(base, *map(torch.zeros_like, factors), *args[3:], **kwargs)
        finite = torch.isfinite(product)
        if not bool(finite.all()):
            self._met.append(func)
            if self._multiplied:
                out.masked_fill_(~finite, math.nan)
        return out


def zero_factor_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with such products left out, and the backend's run with these numbers where it has what follows from the
    other choice.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where no product is multiplied by 0.
    """
    met: list[Any] = []
    without, multiplied = (referee.inside(partial(ScaledByZero, choice, met)) for choice in (False, True))
    if not any(call.kwargs.get("alpha", 1) == 0 for call in referee.program.calls):
        return
    wanted, others = without.eager.leaves, multiplied.eager.leaves
    outputs = len(flatten(actual.outputs))
    given = flatten((actual.outputs, actual.inputs))
    if met and len(wanted) == len(others) == len(given):
        given = [_settled(*leaf) for leaf in zip(wanted, others, given, strict=True)]
        eager = replace(expected, outputs=wanted[:outputs], inputs=tuple(wanted[outputs:]))
        yield without, eager, replace(actual, outputs=given[:outputs], inputs=tuple(given[outputs:]))


def _settled(wanted: Any, other: Any, given: Any) -> Any:
    """The backend's numbers, those of the one choice in place of those that it has of the other."""
    tensors = (wanted, other, given)
    if not all(isinstance(v, Tensor) and v.dtype == given.dtype and v.shape == given.shape for v in tensors):
        return given
    if any(v.layout is not torch.strided for v in tensors):
        return given
    return torch.where(same_values(given, other) & ~same_values(wanted, other), wanted, given)
