"""A product that is multiplied by 0: left out, or infinity times 0.

Of ``beta=0`` PyTorch promises that NaN and infinities of the operand are ignored, of ``alpha=0`` it promises nothing.
Eager leaves the product out where BLAS computes it (``addmm`` in float32), and multiplies it where a kernel of its own
does (``addmm`` in bfloat16, ``addmv`` of complex numbers, ``baddbmm`` of small matrices). PyTorch's decompositions
multiply. So either answer is right, of each element.

    addmm(c, a, b, alpha=0), with a NaN in a:    c, or c + NaN wherever the product a b is NaN or infinite

Eager computes ``(value * a) * b`` for ``addcmul``, PyTorch's decomposition ``value * (a * b)``. With ``value=0`` the
first is 0 and the second NaN where ``a * b`` leaves the range. Neither leaves out a NaN.

    addcmul(c, a, b, value=0), with a = b = 1e38:    c, or NaN
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
        if not SCALES_PRODUCT.holds(func) or not scales_by_zero(kwargs) or "out" in kwargs or len(args) < 3:
            return func(*args, **kwargs)
        base, *factors = args[:3]
        if "value" in kwargs:
            product = func(torch.zeros_like(base), *factors, *args[3:], **(kwargs | {"value": 1}))
            return self._with(func(*args, **kwargs), product, func)
        product = func(torch.zeros_like(base), *factors, *args[3:], **(kwargs | {"alpha": 1, "beta": 0}))
        return self._with(func(base, *map(torch.zeros_like, factors), *args[3:], **kwargs), product, func)

    def _with(self, out: Tensor, product: Tensor, func: Any) -> Tensor:
        finite = torch.isfinite(product)
        if not bool(finite.all()):
            self._met.append(func)
            if self._multiplied:
                out.masked_fill_(~finite, math.nan)
        return out


def scales_by_zero(kwargs: Mapping[str, Any]) -> bool:
    """Whether a call multiplies its product by 0."""
    return any(kwargs.get(name, 1) == 0 for name in ("alpha", "value"))


def zero_factor_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with such products left out, and the backend's run with these numbers where it has what follows from the
    other choice.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where no product is multiplied by 0.
    """
    met: list[Any] = []
    without, multiplied = (referee.inside(partial(ScaledByZero, choice, met)) for choice in (False, True))
    if not any(scales_by_zero(call.kwargs) for call in referee.program.calls):
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
