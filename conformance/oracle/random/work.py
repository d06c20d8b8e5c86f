"""How much a run of a program is, in elements: what decides how often it is run. No clock has a say in a verdict."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.conformance.program.program import Program

EACH_CALL = 1000
"""What a call costs that has hardly an element, in elements."""

MOST = 1 << 20
"""Elements of a program that can be run some hundred times, in seconds."""


class _Count(ComputingMode):
    """Counts the elements that operators read and write."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, out))
        self.elements += EACH_CALL + sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))
        return out


def work(program: Program, args: tuple[Tensor, ...]) -> int:
    """Run a program in eager and count its elements; one that eager refuses counts until it does."""
    count = _Count()
    with contextlib.suppress(Exception), torch.no_grad(), torch.random.fork_rng(devices=[]), count:
        program(*args)
    return max(count.elements, EACH_CALL)


def affordable(most: int, work: int) -> int:
    """Return how many runs there is room for: ``most`` of a program that is not too large, fewer of a larger one."""
    return most * MOST // max(work, MOST)
