"""The numbers that a run of the rounding model draws: anew, or along the line through those of two other runs.

A run is a function of what it draws, one number in ``[-LARGEST, LARGEST]`` for each rounding, in ULPs. A search for a
result goes along the line through two runs: see ``search``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 4.0
"""ULPs: the same share of its own roundings that ``SPREAD_FACTOR`` grants a right backend."""


@dataclass(frozen=True)
class Draws:
    """What a run draws. ``direction``: all to one side."""

    seed: int
    scale: float = LARGEST
    direction: int = 0


@dataclass(frozen=True)
class Line:
    """What lies at ``t`` on the line from one run's draws (0) to another's (1), if it is no larger than ``LARGEST``."""

    start: Draws
    end: Draws
    t: float


class DrawStream:
    """The numbers of one run, asked for tensor by tensor."""

    def __init__(self, draws: Draws | Line) -> None:
        self._line = draws if isinstance(draws, Line) else Line(draws, draws, 0.0)
        ends = (self._line.start, self._line.end) if self._line.t else (self._line.start,)
        self._ends = [(end, torch.Generator().manual_seed(end.seed)) for end in ends]

    def take(self, shape: torch.Size) -> Tensor:
        """The next tensor, in float64."""
        values = [_drawn(*end, shape) for end in self._ends]
        if len(values) == 1:
            return values[0]
        return (values[0] + (values[1] - values[0]) * self._line.t).clamp(-LARGEST, LARGEST)


def _drawn(draws: Draws, generator: torch.Generator, shape: torch.Size) -> Tensor:
    if draws.direction:
        return torch.full(shape, draws.direction * draws.scale, dtype=torch.float64)
    return (2.0 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1.0) * draws.scale
