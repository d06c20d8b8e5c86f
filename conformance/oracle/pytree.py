"""Results and arguments as trees: flattening them, naming their leaves, and finding where two trees differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def leaves_of(*values: Any) -> list[Any]:
    """The leaves of what a dispatch mode is given: lists, tuples and dicts of tensors and other values.

    PyTorch's own function takes any class of nodes, and ten times as long; the models ask it of each step.
    """
    found: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += leaves_of(*value)
        elif isinstance(value, dict):
            found += leaves_of(*value.values())
        else:
            found.append(value)
    return found


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """The same tree with each of these leaves changed."""
    if isinstance(value, list | tuple):
        changed = [map_leaves(change, item) for item in value]
        if isinstance(value, list):
            return changed
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if isinstance(value, dict):
        return {key: map_leaves(change, item) for key, item in value.items()}
    return change(value)


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
