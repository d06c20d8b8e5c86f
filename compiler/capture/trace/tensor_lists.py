"""Tensors made of lists that hold tensors, by ops: PyTorch's C++ reads such elements where no mode sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchstone.compiler._torch.modes import DisableTorchFunction, no_dispatch_modes
from torchstone.compiler.capture.symbolic.numbers import NUMBERS

# Functions that take a list, by the place and by the name of the argument.
MAKERS: Mapping[str, tuple[int, str]] = {
    "tensor": (0, "data"),
    "as_tensor": (0, "data"),
    "asarray": (0, "obj"),
    "new_tensor": (1, "data"),
    "new": (1, "data"),
}


def made_of_list(func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the tensor that a function of ``MAKERS`` makes of a list of tensors and numbers.

    NotImplemented where it is given none that holds a tensor. What eager refuses is raised.
    """
    place, key = MAKERS[name]
    data = args[place] if len(args) > place else kwargs.get(key)
    if not isinstance(data, list | tuple) or not any(isinstance(e, torch.Tensor) for e in _elements(data)):
        return NotImplemented
    with DisableTorchFunction(), no_dispatch_modes():
        like = _zeros(data)
        given = [_zeros(a) if i == place else _plain(a) for i, a in enumerate(args)]
        made = func(*given, **{k: like if k == key else _plain(v) for k, v in kwargs.items()})
    out = _stacked(data, made.dtype).reshape(made.shape)
    return out.requires_grad_() if made.requires_grad else out


def listed(data: Sequence[Any]) -> torch.Tensor:
    """Return the tensor that eager makes of a list among indices."""
    made = made_of_list(torch.tensor, "tensor", (data,), {})
    return torch.tensor(data) if made is NotImplemented else made


def holds_tensor(data: Any) -> bool:
    """Say whether a list, or one in it, has a tensor for an element."""
    return isinstance(data, list) and any(isinstance(e, torch.Tensor) for e in _elements(data))


def _elements(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from _elements(item)
    else:
        yield data


def _zeros(data: Any) -> Any:
    """Return the same list with zeros in the place of tensors and symbols: it makes a tensor of the same type."""
    if isinstance(data, list | tuple):
        return [_zeros(item) for item in data]
    if isinstance(data, torch.Tensor):
        return torch.zeros([int(s) for s in data.shape], dtype=data.dtype)
    return data.node.pytype() if isinstance(data, NUMBERS) else data


def _plain(argument: Any) -> Any:
    return torch.zeros(0, dtype=argument.dtype) if isinstance(argument, torch.Tensor) else argument


def _stacked(data: Any, dtype: torch.dtype) -> torch.Tensor:
    parts = []
    for element in _elements(data):
        if isinstance(element, torch.Tensor):
            parts.append(element.detach().to(dtype).reshape(-1))
        else:
            parts.append(torch.full((1,), element, dtype=dtype))
    return torch.cat(parts)
