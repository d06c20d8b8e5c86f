"""A program in the making: its calls, and what eager gives for each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.literals import Ref, map_leaves
from torchstone.conformance.program.program import Call

LARGE = 256
"""What makes 4 a number whose exponential overflows in float64 too."""


class Draft:
    """Calls on inputs that are drawn as they are needed, of one dtype if nothing else is said."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.inputs: dict[str, Tensor] = {}
        self.calls: list[Call] = []
        self.values: dict[str, Any] = {}

    def input(self, *shape: int, dtype: torch.dtype | None = None, below: int = 0) -> Ref:
        """A new input, or one of the same kind that there is: whole numbers below ``below``, or small ones.

        Fractions are multiples of a quarter: exact in every dtype, with ties, and with zeros. A few are so large that
        their exponential overflows in every dtype.
        """
        dtype = dtype or self.dtype
        name = f"{'i' if below else 'x'}{len(self.inputs)}"
        if below:
            self._set(name, torch.randint(below, shape).to(dtype))
        elif dtype == torch.bool:
            self._set(name, torch.rand(shape) < 0.5)
        else:
            low = 0 if not dtype.is_floating_point and not dtype.is_complex and torch.iinfo(dtype).min == 0 else -16
            drawn = torch.randint(low, 17, (*shape, 2)).to(torch.float64)
            real = drawn[..., 0] / 4 if dtype.is_floating_point or dtype.is_complex else drawn[..., 0]
            if dtype.is_floating_point:
                real = real.clone()
                real.view(-1)[::11] *= LARGE
            value = torch.complex(real, drawn[..., 1] / 4) if dtype.is_complex else real
            self._set(name, value.to(dtype))
        return Ref(name)

    def _set(self, name: str, tensor: Tensor) -> None:
        self.inputs[name] = self.values[name] = tensor

    def like(self, ref: Ref) -> Ref:
        """An input of the shape and dtype of a result."""
        return self.input(*self[ref].shape, dtype=self[ref].dtype)

    def indices(self, ref: Ref, dim: int, count: int) -> Ref:
        """Places along a dim of a result, some of them twice."""
        return self.input(count, dtype=torch.int64, below=self[ref].shape[dim])

    def mask(self, ref: Ref) -> Ref:
        """A mask of the shape of a result."""
        return self.input(*self[ref].shape, dtype=torch.bool)

    def call(self, target: str, *args: Any, **kwargs: Any) -> Ref:
        """One more call. Raises what eager raises."""

        def value(leaf: Any) -> Any:
            return self[leaf] if isinstance(leaf, Ref) else leaf

        given, named = map_leaves((args, kwargs), value)
        name = f"r{len(self.calls)}"
        self.values[name] = resolve(target)(*given, **named)
        self.calls.append(Call(target, args, kwargs, name))
        return Ref(name)

    def __getitem__(self, ref: Ref) -> Any:
        found = self.values[ref.name]
        for step in ref.path:
            found = found[step]
        return found

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Calls that eager refuses are taken back, and what they drew."""
        inputs, calls, values = dict(self.inputs), list(self.calls), dict(self.values)
        try:
            yield
        except Exception:  # whatever it says, eager does not take the call
            self.inputs, self.calls, self.values = inputs, calls, values
