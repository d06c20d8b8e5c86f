"""Tensors: their memory, and what PyTorch notes on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler._torch.names import attributes, uses

# Attributes that differ from one call to the next, or tell of memory.
HIDDEN_ATTRIBUTES = attributes(
    "torch.Tensor",
    {
        "_backward_hooks", "_base", "_cdata", "_is_view", "_is_zerotensor", "_post_accumulate_grad_hooks",
        "_typed_storage", "_version",
    },
    "refuse a program that asks a tensor for it",
)  # fmt: skip
# What PyTorch itself sets on instances.
OWN_ATTRIBUTES = ("_dynamo", "_is_param", "_typed_storage")


@uses("torch.UntypedStorage._cdata")
def storage_key(memory: torch.Tensor | torch.UntypedStorage) -> int:
    """Return what tells a storage, given itself or a tensor in it, from every other one that is alive."""
    return (memory.untyped_storage() if isinstance(memory, torch.Tensor) else memory)._cdata


@uses("torch.Tensor._version")
def version(tensor: torch.Tensor) -> int:
    """Return how often a tensor's memory was written to. RuntimeError for an inference tensor, of which none knows."""
    return tensor._version


def known_version(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor's memory was written to; None for an inference tensor, where PyTorch does not count."""
    return None if tensor.is_inference() else tensor._version


@uses("torch.Tensor._is_zerotensor")
def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is zeros without memory, as autograd makes them."""
    return tensor._is_zerotensor()


def with_values_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: itself, or a copy of one with a lazy bit or without memory."""
    if is_zero_tensor(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).zero_()
    return tensor.resolve_conj().resolve_neg()


@uses("torch.Tensor()._has_symbolic_sizes_strides")
def has_symbolic_layout(tensor: torch.Tensor) -> bool:
    """Say whether a size or a stride of a tensor is a symbol."""
    return tensor._has_symbolic_sizes_strides


@uses("torch._conj", "torch._neg_view")
def flip_lazy_bits(tensor: torch.Tensor, *, conj: bool = False, neg: bool = False) -> torch.Tensor:
    """Return a view of the same memory with the lazy conjugate bit, the lazy negative bit or both turned round."""
    tensor = torch._neg_view(tensor) if neg else tensor
    return torch._conj(tensor) if conj else tensor


def flip_bits_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Turn round the lazy bits that ``like`` has set: raw memory then reads as ``like``, and ``like`` as raw memory."""
    return flip_lazy_bits(tensor, conj=like.is_conj(), neg=like.is_neg())


def mark_parameter(tensor: Any) -> None:
    """Have ``isinstance(tensor, torch.nn.Parameter)`` hold of a tensor that stands for a parameter."""
    tensor._is_param = True


def is_marked_parameter(value: Any) -> bool:
    """Say whether a tensor stands for a parameter."""
    return getattr(value, "_is_param", False)


@contextlib.contextmanager
@uses("torch._C._swap_tensor_impl")
def swapping_replaced(by: Callable[..., Any]) -> Iterator[None]:
    """Replace the function behind ``torch.utils.swap_tensors`` in the block."""
    kept, torch._C._swap_tensor_impl = torch._C._swap_tensor_impl, by
    try:
        yield
    finally:
        torch._C._swap_tensor_impl = kept
