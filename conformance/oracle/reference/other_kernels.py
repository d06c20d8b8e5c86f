"""Eager's steps by the other kernels that it has for the same numbers.

Most kernels compute numbers that lie one after the other in whole vectors of the processor, and one by one what is left
at the end of a row or lies with gaps. For some operands the two give different answers:

    the gradient of elu at NaN      NaN in a vector, the scale alone
    the gradient of relu6 at NaN    0 in a vector, 1 alone

No documentation tells which of the two is right, so that a backend may give either.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.pytrees import tree_leaves, tree_map_only
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.oracle.op_traits.execution import READS_THE_LAYOUT
from torchstone.conformance.oracle.op_traits.undetermined import UNINITIALIZED
from torchstone.conformance.oracle.perturbation.inputs import with_gaps

COPIES = 64
"""A kernel takes two vectors at a time, 64 numbers of 16 bits at most: so many copies leave nothing at the end."""


class OneByOne(ComputingMode):
    """Each step on operands with gaps."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, dict(kwargs or {}))
        result = func(*given[0], **given[1])
        return _replaced(result, self.again(func, given, result)) if _is_function(func, given, result) else result

    def again(self, func: Any, given: Any, result: Tensor) -> Tensor | None:
        """The step by another kernel; None where it refuses these operands."""
        return _asked(func, tree_map_only(Tensor, with_gaps, given))


class InVectors(OneByOne):
    """Each step that computes number by number on many copies of its operands: every number is in a whole vector."""

    def again(self, func: Any, given: Any, result: Tensor) -> Tensor | None:
        """The step on copies, if it does not tell them from each other: with gaps each gives what one does."""
        operands = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        if any(operand.shape != result.shape for operand in operands):
            return None
        copies = tree_map_only(Tensor, lambda operand: operand.expand(COPIES, *operand.shape), given)
        one, each = (_asked(func, tree_map_only(Tensor, with_gaps, some)) for some in (given, copies))
        if one is None or each is None or not equal_tensors(each, one.expand(COPIES, *one.shape)):
            return None
        found = _asked(func, tree_map_only(Tensor, lambda copy: copy.contiguous(), copies))
        return None if found is None else found[0]


def _is_function(func: Any, given: Any, result: Any) -> bool:
    """Whether a step computes a new tensor from the numbers of its operands alone."""
    if func.is_view or schema_of(func).is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    if READS_THE_LAYOUT.holds(func) or UNINITIALIZED.holds(func):
        return False
    operands = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    tensors = [*operands, result]
    return (
        bool(operands)
        and all(isinstance(each, Tensor) and each.layout is torch.strided for each in tensors)
        and (result.is_floating_point() or result.is_complex())
    )


def _asked(func: Any, given: Any) -> Tensor | None:
    """What eager gives for these operands; None where it has no kernel for operands that lie so."""
    try:
        return func(*given[0], **given[1])
    except RuntimeError:
        return None


def _replaced(result: Tensor, found: Tensor | None) -> Tensor:
    """The result, where it lies, with the numbers that were found."""
    return result if found is None or found.shape != result.shape else result.copy_(found)
