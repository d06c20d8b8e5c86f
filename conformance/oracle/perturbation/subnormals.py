"""Subnormal results flushed to zero, which compilers and processors may do, and what follows from that.

    x * 1e-30 * 1e-15 * 1e20    1e-25, or 0 where the number of 1e-45 between is flushed

The floor of the tolerances covers a result that is subnormal itself. Only results of steps that round are flushed:
a subnormal number that is moved, compared or rounded to an integer stays what it is, and so do inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.conformance.oracle.exactness.steps import never_rounds

FLUSHED = (torch.float32, torch.float64, torch.bfloat16)
"""Hardware keeps the subnormal numbers of float16."""


def flushed(tensor: Tensor) -> Tensor:
    """The tensor with zeros of their sign in the place of subnormal numbers."""
    small = tensor.abs() < torch.finfo(tensor.dtype).smallest_normal
    return torch.where(small, torch.copysign(torch.zeros_like(tensor), tensor), tensor)


class FlushSubnormals(ComputingMode):
    """Eager whose steps flush what is subnormal in their results."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not never_rounds(func):
            for leaf in tree_leaves(out):
                if isinstance(leaf, Tensor) and leaf.dtype in FLUSHED and leaf.layout is torch.strided:
                    leaf.copy_(flushed(leaf))
        return out
