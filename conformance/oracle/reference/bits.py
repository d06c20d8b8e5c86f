"""Bits read as numbers of another dtype: ``Tensor.view(dtype)``.

They are the bits of eager's numbers, and those of a float64 run are others. There the numbers are converted to eager's
dtype, viewed, and made wide again. That is a copy: what a program writes to one of the two is carried over to the
other, but for the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.pytrees import tree_map_only
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.reference.widen import wider
from torchstone.conformance.oracle.tolerances import real_dtype


def reads_bits(eager: torch.dtype, named: torch.dtype) -> bool:
    """Whether the numbers that a view gives, of eager's as those of another dtype, hang on their bits. A complex number
    viewed as two real ones, or an integer as another, is the same in the float64 run."""
    pair = real_dtype(eager), real_dtype(named)
    return pair[0] != pair[1] and any(dtype.is_floating_point for dtype in pair)


def viewed(function: Callable[..., Any], eager: torch.dtype, named: torch.dtype, /, *args: Any, **kwargs: Any) -> Any:
    """What a call of the float64 run gives that views its operand as ``named``, where eager's is of the dtype
    ``eager``."""
    if not reads_bits(eager, named):
        args, kwargs = tree_map_only(torch.dtype, wider, (args, kwargs))
        return function(*args, **kwargs)
    args, kwargs = tree_map_only(Tensor, lambda operand: operand.to(eager), (args, kwargs))
    return function(*args, **kwargs).to(wider(named))


@dataclass
class Alias:
    """A ``view`` of the float64 run and what it views, which are one memory in eager's run, of numbers of the dtypes
    ``named`` and ``eager``."""

    source: Tensor
    view: Tensor
    eager: torch.dtype
    named: torch.dtype

    def __post_init__(self) -> None:
        self._note()

    def _note(self) -> None:
        self._of_source, self._of_view = self._read(), self.view.detach().clone()

    def _read(self) -> Tensor:
        return self.source.detach().to(self.eager).view(self.named).to(self.view.dtype)

    def settle(self) -> None:
        """Carry over what was written to one of the two since the last time."""
        if not same_bits(found := self._read(), self._of_source):
            self.view.data.copy_(found)
        elif not same_bits(self.view.detach(), self._of_view):
            self.source.data.copy_(self.view.detach().to(self.named).view(self.eager))
        else:
            return
        self._note()
