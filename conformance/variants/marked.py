"""The variant ``marked``: whole numbers that stand for something else, among those that name places.

-1 ends the labels of ``multilabel_margin_loss`` or is the last place of a dim, ``ignore_index`` takes a label out. A
sample has places alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.variants.defaults import left_out
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import change_inputs

EACH = 3
"""Every third number is one, from the second on: there are places before and after it."""


def marked(case: Case) -> Case:
    """The case with the lowest negative number among its arguments, or -1, in its inputs of whole numbers."""
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in case.args):
        raise NotApplicable("whole numbers name no places of others")
    mark = min(_negative_numbers(case), default=-1)

    def change(tensor: Tensor) -> Tensor:
        if tensor.dtype not in (torch.int32, torch.int64) or tensor.numel() < 2:
            return tensor
        flat = tensor.flatten().clone()
        flat[1::EACH] = mark
        return flat.view(tensor.shape)

    return change_inputs(case, change, "no input of whole numbers")


def _negative_numbers(case: Case) -> Iterator[int]:
    """The negative whole numbers among the arguments, those too that are left out."""
    for call in case.program.calls:
        defaults = [list(free.values()) for free in left_out(call)]
        yield from (value for value in leaves([call.args, call.kwargs, *defaults]) if type(value) is int and value < 0)


# An index that a kernel does not look at may end the process.
MARKED = Variant("Whole numbers that stand for something else than a place: -1, ignore_index.", marked, try_eager=False)
