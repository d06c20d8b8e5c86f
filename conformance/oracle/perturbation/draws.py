"""The numbers that a run of the rounding model draws: anew, or along the line through those of two other runs.

A run is a function of what it draws, one number in ``[-LARGEST, LARGEST]`` for each rounding, in ULPs. A search for a
result goes along the line through two runs: see ``search``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

LARGEST = 2.0
"""ULPs: what a step of a good library may be off by, its rounding included."""


@dataclass(frozen=True)
class Draws:
    """What a run draws. ``direction``: all to one side."""

    seed: int
    scale: float = LARGEST
    direction: int = 0


Mix: TypeAlias = tuple[tuple[Draws, float], ...]
"""What several runs draw, each times a number, added up, and cut off at ``LARGEST``."""


def on_line(start: Mix, end: Mix, t: float) -> Mix:
    """What lies at ``t`` on the line from one run's draws (0) to another's (1)."""
    weights: dict[Draws, float] = {}
    for mix, share in ((start, 1.0 - t), (end, t)):
        for draws, weight in mix:
            weights[draws] = weights.get(draws, 0.0) + share * weight
    return tuple(weights.items())


class DrawStream:
    """The numbers of one run, asked for tensor by tensor."""

    def __init__(self, mix: Mix) -> None:
        self._mix = [(draws, torch.Generator().manual_seed(draws.seed), weight) for draws, weight in mix]

    def take(self, shape: torch.Size) -> Tensor:
        """The next tensor, in float64."""
        if len(self._mix) == 1 and self._mix[0][2] == 1.0:
            return _drawn(self._mix[0][0], self._mix[0][1], shape).clamp_(-LARGEST, LARGEST)
        total = torch.zeros(shape, dtype=torch.float64)
        for draws, generator, weight in self._mix:
            total += weight * _drawn(draws, generator, shape)
        return total.clamp(-LARGEST, LARGEST)


class Streams:
    """The numbers of several runs that are made at once, stacked."""

    def __init__(self, streams: list[DrawStream]) -> None:
        self._streams = streams
        self.differ = False
        """Whether something was asked for that is not of each run."""

    def take(self, shape: torch.Size) -> Tensor:
        """The next tensor of each run."""
        if shape[:1] != (len(self._streams),):
            self.differ = True
            return torch.zeros(shape, dtype=torch.float64)
        return torch.stack([stream.take(shape[1:]) for stream in self._streams])


def _drawn(draws: Draws, generator: torch.Generator, shape: torch.Size) -> Tensor:
    if draws.direction:
        return torch.full(shape, draws.direction * draws.scale, dtype=torch.float64)
    return torch.rand(shape, generator=generator, dtype=torch.float64).mul_(2.0).sub_(1.0).mul_(draws.scale)
