"""The numbers that eager draws, in the other runs of a program too.

A program that draws at random is another function each time it is run. Eager draws from a seed, and some backends give
the same numbers; float64 takes others from the same seed. So what eager's random steps gave is recorded, and each step
of another run gives that, in its own dtype: the program becomes a function of its inputs alone.

A step may have operands too: the mean of a normal number, what dropout leaves. Where another run has other numbers for
them, the step is made again, in eager's dtypes and from the state in which eager's generator was. So what follows from
them is seen, as far as eager's dtypes show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.pytrees import tree_flatten, tree_unflatten
from torchstone.conformance.oracle.equality import same_bits


class ReplayMismatch(Exception):
    """A run draws where eager did not, or something else."""


def may_draw(func: Any, kwargs: Any) -> bool:
    """Whether an op may take numbers from the common generator. (The models that ask have generators of their own.)"""
    return torch.Tag.nondeterministic_seeded in func.tags and (kwargs or {}).get("generator") is None


def call_and_see_rng(func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
    """Call an op; return what it gives, and whether it took numbers from the common generator.

    Many an op may that mostly does not: attention, without dropout. Then it is a function of its operands like others.
    """
    if not may_draw(func, kwargs):
        return func(*args, **(kwargs or {})), False
    before = torch.default_generator.get_state()
    out = func(*args, **(kwargs or {}))
    return out, not torch.equal(before, torch.default_generator.get_state())


@dataclass(frozen=True)
class Draw:
    """A random step of eager: the operator, its arguments before and its results after, and the generator's state."""

    func: Any
    arguments: list[Any]
    results: list[Any]
    state: Tensor


class RecordRng(ComputingMode):
    """Records random steps, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Draw] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not may_draw(func, kwargs):
            return func(*args, **(kwargs or {}))
        before, state = _copied((args, kwargs or {})), torch.default_generator.get_state()
        out, drew = call_and_see_rng(func, args, kwargs)
        if drew:
            self.found.append(Draw(func, before, _copied(out), state))
        return out


def _copied(tree: Any) -> list[Any]:
    return [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in tree_flatten(tree)[0]]


class ReplayRng(ComputingMode):
    """Gives each random step what eager drew in its place. Raises ``ReplayMismatch`` where there is no such step."""

    def __init__(self, recorded: list[Draw]) -> None:
        super().__init__()
        self._recorded = iter(recorded)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not may_draw(func, kwargs):
            return func(*args, **(kwargs or {}))
        before = _copied((args, kwargs or {}))
        out, drew = call_and_see_rng(func, args, kwargs)
        if not drew:
            return out
        draw = next(self._recorded, None)
        leaves = tree_flatten(out)[0]
        if draw is None or draw.func is not func or not _alike(leaves, draw.results):
            raise ReplayMismatch(f"{func} is not what eager draws here")
        for leaf, part in zip(leaves, _drawn(draw, before, (args, kwargs or {})), strict=True):
            if isinstance(leaf, Tensor):
                leaf.copy_(part)
        return out


def _alike(leaves: list[Any], others: list[Any]) -> bool:
    """Whether tensors stand in the same places, of the same shapes."""
    return [getattr(leaf, "shape", None) for leaf in leaves] == [getattr(leaf, "shape", None) for leaf in others]


def _drawn(draw: Draw, arguments: list[Any], tree: Any) -> list[Any]:
    """What eager's step gives for these arguments, whose ``tree`` is given, in the dtypes of eager's own."""
    if not _alike(arguments, draw.arguments):
        return draw.results
    own = [
        given.to(recorded.dtype) if isinstance(recorded, Tensor) and isinstance(given, Tensor) else recorded
        for given, recorded in zip(arguments, draw.arguments, strict=True)
    ]
    pairs = zip(own, draw.arguments, strict=True)
    if all(same_bits(a, b) for a, b in pairs if isinstance(a, Tensor)):
        return draw.results
    after = torch.default_generator.get_state()
    torch.default_generator.set_state(draw.state)
    try:
        args, kwargs = tree_unflatten(own, tree_flatten(tree)[1])
        return tree_flatten(draw.func(*args, **kwargs))[0]
    finally:
        torch.default_generator.set_state(after)
