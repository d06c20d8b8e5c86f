"""What a model of the suite is: how it is made, and the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Inputs = Callable[[int, torch.dtype], tuple[Any, ...]]

SAMPLES = ((3, False), (3, True), (1, False), (5, False))
"""Batch size, and whether in training mode, of each sample."""


@dataclass(frozen=True)
class Example:
    """``inputs(batch, dtype)`` are a call's arguments, the last of them by the names in ``keywords``.

    ``batch_dims`` has the dim of each of their leaves that is the batch, None where there is none. ``package`` is the
    one that has the model's class, if it is none of ours. ``samples`` are like ``SAMPLES``.
    """

    make: Callable[[], nn.Module]
    inputs: Inputs
    batch_dims: Any
    keywords: tuple[str, ...] = ()
    package: str = ""
    samples: tuple[tuple[int, bool], ...] = SAMPLES

    def model(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Return the model, the same numbers each time. InputError where its package is missing."""
        torch.manual_seed(0)
        model = self.make().to(dtype)
        if self.package:
            _draw_constants(model)
        return model

    def args(self, batch: int, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
        """Return the positional arguments of a call, the same numbers each time."""
        return self._inputs(batch, dtype)[0]

    def kwargs(self, batch: int, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
        """Return the keyword arguments of that call."""
        return self._inputs(batch, dtype)[1]

    def _inputs(self, batch: int, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(batch)
        values = self.inputs(batch, dtype)
        positional = len(values) - len(self.keywords)
        return values[:positional], dict(zip(self.keywords, values[positional:], strict=True))


@torch.no_grad()
def _draw_constants(model: nn.Module) -> None:
    """Draw what a new model has the same everywhere: biases, scales, statistics.

    A fault in what all zeros are added to, or all ones multiplied with, would not be seen.
    """
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.numel() > 1 and parameter.min() == parameter.max():
            parameter.add_(0.1 * torch.randn(parameter.shape).to(parameter.dtype))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * torch.randn(buffer.shape))
        elif name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape))


def tensors_of(result: Any) -> Any:
    """Return a result with the attributes of an object (a cache of keys and values) in its place, tensors only."""
    if isinstance(result, Tensor):
        return result
    if isinstance(result, Mapping):
        kept = {str(key): tensors_of(value) for key, value in result.items()}
        return {key: value for key, value in kept.items() if value is not None}
    if isinstance(result, tuple | list):
        return [value for value in map(tensors_of, result) if value is not None]
    return tensors_of(vars(result)) or None if hasattr(result, "__dict__") and not isinstance(result, type) else None


def image(size: int) -> Inputs:
    """Return inputs of square images with three channels."""
    return lambda batch, dtype: (torch.randn(batch, 3, size, size, dtype=torch.float64).to(dtype),)
