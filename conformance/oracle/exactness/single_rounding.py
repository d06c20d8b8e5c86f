"""Programs of one operation of IEEE 754, whose result is the nearest number there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.conformance.oracle.exactness.steps import never_rounds
from torchstone.conformance.oracle.op_traits.rounding import CONVERSIONS, ONE_ROUNDING
from torchstone.conformance.oracle.op_traits.trait import names_of
from torchstone.conformance.oracle.tolerances import SINGLE_ROUNDING_ULPS
from torchstone.conformance.oracle.ulp import precision, representable, ulp


@dataclass(frozen=True)
class SingleRounding:
    """An operation that rounds to ``dtype``, and whether it does nothing else."""

    dtype: torch.dtype
    converts: bool


class RecordRoundings(ComputingMode):
    """Records what rounds: ``rounded`` are single operations of IEEE 754, ``others`` counts the steps that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: list[SingleRounding] = []
        self.others = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs or {}))
        if CONVERSIONS.holds(func) and isinstance(out, Tensor):
            source = args[1] if names_of(func)[0] == "copy" else args[0]
            if _narrower(out.dtype, source.dtype):
                self.rounded.append(SingleRounding(out.dtype, converts=True))
        elif ONE_ROUNDING.holds(func) and isinstance(out, Tensor) and _plain(leaves, out.dtype):
            self.rounded.append(SingleRounding(out.dtype, converts=False))
        elif not never_rounds(func):
            self.others += 1
        return out

    @property
    def once(self) -> SingleRounding | None:
        """What all is rounded by, if there is one such step and no other."""
        return self.rounded[0] if len(self.rounded) == 1 and not self.others else None


def _narrower(dtype: torch.dtype, source: torch.dtype) -> bool:
    """Whether a conversion may round."""
    if not dtype.is_floating_point:
        return False
    return not source.is_floating_point or precision(dtype) < precision(source)


def _plain(leaves: list[Any], dtype: torch.dtype) -> bool:
    """Whether an operation on 16-bit numbers has nothing beside its operands: no factor, no number to be rounded."""
    if dtype not in (torch.float16, torch.bfloat16):
        return False
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    numbers = [leaf for leaf in leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
    return (
        all(tensor.dtype == dtype for tensor in tensors)
        and not any(isinstance(leaf, str) for leaf in leaves)  # a rounding mode
        and len(tensors) + len(numbers) <= 2
        and all(bool(representable(torch.tensor(float(number), dtype=torch.float64), dtype)) for number in numbers)
    )


def misrounded(actual: Tensor, expected: Tensor, truth: Tensor, by: SingleRounding) -> Tensor:
    """Where eager's number is the nearest, and the backend's another that is not, of results of one rounding.

    A conversion gives of two that are as near the one with an even last place, as eager does; other operations may be
    computed in float32, and not to the last bit. All three in float64, which holds what lies half way between two
    numbers exactly, but for integers of more bits. Not where numbers are subnormal, which may be flushed, nor next to
    overflow.
    """
    info = torch.finfo(by.dtype)
    unit = SINGLE_ROUNDING_ULPS * ulp(truth.abs(), by.dtype)
    ordinary = torch.isfinite(actual) & torch.isfinite(expected) & (truth.abs() >= info.tiny) & (truth.abs() < info.max)
    right, wrong = (expected - truth).abs(), (actual - truth).abs()
    half_way = (right == wrong) & (actual != expected) & (truth.abs() < 1 / torch.finfo(torch.float64).eps)
    return ordinary & (right <= unit) & ((wrong > unit) | (half_way if by.converts else False))
