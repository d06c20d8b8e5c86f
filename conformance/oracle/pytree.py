"""Results as trees: flattening them, naming their leaves, and finding where two trees differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.literals import dtype_name


def paths(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each leaf with how a person would write it: ``output[0]``. Sequences of every type are alike, dicts go by key.

    A sparse tensor is its dense form, a quantized one its numbers, a nested one a sequence.
    """
    if isinstance(value, Tensor) and value.is_nested:
        value = list(value.unbind())
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from paths(item, f"{name}[{index}]")
    elif isinstance(value, dict):
        for key in value:
            yield from paths(value[key], f"{name}[{key!r}]")
    else:
        yield name, value


def flatten(value: Any) -> list[Any]:
    """The leaves alone."""
    return [leaf for _, leaf in paths(value, "")]


def shape_of(value: Any) -> str:
    """The structure of a tree in words: ``(tensor, [int])``."""
    if isinstance(value, tuple | list):
        return "(" + ", ".join(shape_of(item) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {shape_of(item)}" for key, item in value.items()) + "}"
    return "tensor" if isinstance(value, Tensor) else type(value).__name__


def dense(tensor: Tensor) -> Tensor:
    """The numbers of a tensor of any layout, plain and strided."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg()


def describe(tensor: Tensor) -> str:
    """``float32[2, 3]``."""
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"
