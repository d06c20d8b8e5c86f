"""Variants of where inputs lie in memory: the same values, other strides, offsets and flags."""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_lazy_bits
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import agreeing, change_inputs, determined, of_each_input


def _strided(tensor: Tensor) -> Tensor:
    """The same values with one unused element after each."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return tensor
    room = tensor.new_zeros((*tensor.shape, 2))
    room[..., 0] = tensor
    return room[..., 0]


def transposed(tensor: Tensor) -> Tensor:
    """The same values with the dims in the opposite order in memory."""
    if tensor.dim() < 2 or tensor.numel() < 2:
        return tensor
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def _offset(tensor: Tensor) -> Tensor:
    """The same values behind three unused elements."""
    if not tensor.numel():
        return tensor
    room = tensor.new_zeros(tensor.numel() + 3)
    room[3:] = tensor.reshape(-1)
    return room[3:].view(tensor.shape)


def _channels_last(tensor: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = formats.get(tensor.dim())
    return tensor if form is None else tensor.clone(memory_format=form)


def expanded(tensor: Tensor) -> Tensor:
    """The first row in every row's place, one in memory."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.shape[0] > 1 else tensor


def _lazy(case: Case) -> Case:
    """The same numbers, as the conjugates or the negatives of what lies in memory.

    Some of eager's kernels read memory as it is, and some write to it so: such cases are left out.
    """

    def lazily(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.conj_physical().conj()
        return flip_lazy_bits(tensor.neg(), neg=True) if tensor.dtype.is_floating_point else tensor

    changed = change_inputs(case, lazily, "no input of floats")
    with torch.no_grad():
        plain, other = (determined(given.program, given.fresh_args()) for given in (case, changed))
    if not agreeing(plain, other):
        raise NotApplicable("eager gives other results, for it reads what lies in memory as it is")
    return changed


STRIDED = of_each_input("Inputs with a gap after each element.", _strided, "no input has two elements along a dim")
TRANSPOSED = of_each_input(
    "Inputs with their dims in the opposite order in memory.", transposed, "no input has two dims"
)
OFFSET = of_each_input("Inputs that begin inside their storage.", _offset, "no input has an element")
CHANNELS_LAST = of_each_input("Inputs of four and five dims in channels-last order.", _channels_last, "no such input")
EXPANDED = of_each_input("Inputs whose rows are one in memory: a stride of 0.", expanded, "no input has two rows")
LAZY = Variant("Inputs that are lazily conjugated or negated: views that say so.", _lazy)
