"""The elements of a tensor as bytes. PyTorch is imported when it is called: adapters are loaded without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def packed_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a strided tensor's elements in order, in memory of their own, whatever its strides are."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    # Of one element, contiguous() and reshape() keep a stride that no other dtype can be viewed by.
    return plain.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
