"""What a program that draws makes of singular vectors and eigenvectors, whose signs are free.

Two right backends give other distributions of these. Eager is run with other signs from the same seeds: a number that
keeps its size is compared by its size, and one that does not is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.ambiguity.phases import OtherFactors
from torchstone.conformance.oracle.pytree import dense

SEEDS = 4
"""Runs that show which numbers a sign moves: each vector has the other one in half of them."""
MOVED = 1e-2
"""Of the largest number of a result: further than rounding takes any of it, as far as these runs are asked for it."""


@dataclass(frozen=True)
class Open:
    """Of one result: the numbers that are compared by size, and those that are not compared."""

    by_size: Tensor
    not_at_all: Tensor

    def closed(self, value: Any) -> Any:
        """The result without what is open."""
        if not isinstance(value, Tensor) or value.shape != self.by_size.shape or not bool(self.by_size.any()):
            return value
        value = dense(value)
        size = value.abs().to(value.dtype)
        return torch.where(self.not_at_all, torch.zeros_like(value), torch.where(self.by_size, size, value))


def open_numbers(run: Callable[[int, Any], list[Any]], seed: int) -> list[Open | None]:
    """Of each result of a program, what signs of vectors decide; an empty list where there are no vectors.

    ``run`` gives the results from a seed, inside of a mode if one is given.
    """
    rows: list[list[Open | None]] = []
    for at in range(SEEDS):
        other = OtherFactors(at)
        turned = run(seed + at, other)
        if not other.met:
            return []
        rows.append([_open(*pair) for pair in zip(run(seed + at, None), turned, strict=True)])
    return [_either(list(leaves)) for leaves in zip(*rows, strict=True)]


def decide_all(found: list[Open | None]) -> bool:
    """Whether signs of vectors leave nothing of these results to be compared."""
    return bool(found) and all(free is not None and bool(free.not_at_all.all()) for free in found)


def _open(value: Any, turned: Any) -> Open | None:
    if not isinstance(value, Tensor) or not isinstance(turned, Tensor) or value.shape != turned.shape:
        return None
    if not (value.is_floating_point() or value.is_complex()):
        return Open(value != turned, value != turned)
    value, turned = dense(value), dense(turned)
    room = MOVED * value.abs().nan_to_num(0.0, 0.0, 0.0).amax() if value.numel() else 0.0

    def moved(a: Tensor, b: Tensor) -> Tensor:
        return ((a - b).abs() > room) | (torch.isfinite(a) != torch.isfinite(b))

    return Open(moved(value, turned), moved(value.abs(), turned.abs()))


def _either(found: list[Open | None]) -> Open | None:
    """What any of the runs show."""
    known = [each for each in found if each is not None]
    if not known or len({each.by_size.shape for each in known}) > 1:
        return None
    by_size, not_at_all = (
        torch.stack([getattr(each, name) for each in known]).any(0) for name in ("by_size", "not_at_all")
    )
    return Open(by_size | not_at_all, not_at_all)
