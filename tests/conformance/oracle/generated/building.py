"""Programs built call by call, and what the dtypes of generated programs have to do with their constants."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from torchstone.conformance.program.program import Call, Program, Ref

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CHAOTIC = {torch.float32: 1e8, torch.bfloat16: 2e3, torch.float16: 1.2e4, torch.float64: 1e17}
"""A factor by which a number of about 1 becomes an angle of which the dtype knows no turn (float16 has no more)."""


@dataclass
class Builder:
    """Calls to functions of ``torch``, each with a result of its own."""

    rng: random.Random
    dtype: torch.dtype
    calls: list[Call] = field(default_factory=list)

    def __call__(self, target: str, *args: Any, **kwargs: Any) -> Ref:
        name = f"r{len(self.calls)}"
        self.calls.append(Call(f"torch.{target}", args, kwargs, name))
        return Ref(name)

    def program(self, out: Any, inputs: tuple[str, ...] = ("x",)) -> Program:
        return Program(inputs, tuple(self.calls), out)

    def angle(self, source: Ref, factor: float) -> Ref:
        """An angle that follows from ``source`` by a factor, in one step or two."""
        if self.rng.random() < 0.3:
            return self("mul", self("mul", source, factor / 7.0), 7.0)
        return self("mul", source, factor)
