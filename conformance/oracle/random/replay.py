"""The numbers that eager draws, in the other runs of a program too.

A program that draws at random is another function each time it is run. Eager draws from a seed, and some backends give
the same numbers; float64 takes others from the same seed, and so does a run in which anything is moved. So what eager's
random steps gave is noted, and each step of another run gives that, in its own dtype: a function of the inputs alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.pytrees import tree_flatten


class DrawnOtherwise(Exception):
    """A run draws where eager did not, or something else."""


def may_draw(func: Any, kwargs: Any) -> bool:
    """Whether an op may take numbers from the common generator. (The models that ask have generators of their own.)"""
    return torch.Tag.nondeterministic_seeded in func.tags and (kwargs or {}).get("generator") is None


def watched(func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
    """Call an op; return what it gives, and whether it took numbers from the common generator.

    Many an op may that mostly does not: attention, without dropout. Then it is a function of its operands like others.
    """
    if not may_draw(func, kwargs):
        return func(*args, **(kwargs or {})), False
    before = torch.default_generator.get_state()
    out = func(*args, **(kwargs or {}))
    return out, not torch.equal(before, torch.default_generator.get_state())


class Noted(TorchDispatchMode):
    """Notes what random steps give, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, drew = watched(func, args, kwargs)
        if drew:
            self.found.append((func, [t.clone() if isinstance(t, Tensor) else t for t in tree_flatten(out)[0]]))
        return out


class Given(TorchDispatchMode):
    """Gives each random step the numbers noted in its place. Raises ``DrawnOtherwise`` where there are none."""

    def __init__(self, noted: list[tuple[Any, list[Any]]]) -> None:
        super().__init__()
        self._noted = iter(noted)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, drew = watched(func, args, kwargs)
        if not drew:
            return out
        noted, parts = next(self._noted, (None, []))
        leaves = tree_flatten(out)[0]
        if noted is not func or any(
            getattr(a, "shape", a) != getattr(b, "shape", b) for a, b in zip(leaves, parts, strict=True)
        ):
            raise DrawnOtherwise(f"{func} is not what eager draws here")
        for leaf, part in zip(leaves, parts, strict=True):
            if isinstance(leaf, Tensor):
                leaf.copy_(part)
        return out
