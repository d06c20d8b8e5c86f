"""Bits read as numbers of another dtype: ``Tensor.view(dtype)``.

They are the bits of eager's numbers, and those of a float64 run are others. There the numbers are converted to eager's
dtype, viewed, and made wide again. That is a copy: what is written to it is not written to what it was viewed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.pytrees import tree_map_only
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
