"""Which elements of an input decide a result together: those that are summed, scanned, sorted or seen by a window.

Values meet where they decide one result. Two infinities of different sign in one row of a sum meet; in two rows they
do not. Nobody says which dims an op joins, so eager is asked: an element is changed, and the results that follow it
are seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.support import answer

MOST_CALLS = 4
"""Calls of a program that is asked. Of a longer one, a model's, everything in a row is taken to decide together."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The elements of a tensor in groups that decide results together, each a block of ``reach[d]`` along dim ``d``.

    ``group`` and ``place`` have the tensor's shape: the number of an element's group, and its place in there.
    """

    reach: tuple[int, ...]
    group: Tensor
    place: Tensor

    @property
    def size(self) -> int:
        """Places in a group."""
        return math.prod(self.reach)


def groups(case: Case, name: str) -> Groups:
    """The groups of an input's elements."""
    tensor = case.inputs[name]
    long = len(case.program.calls) > MOST_CALLS
    reach = (1, *tensor.shape[1:])[: tensor.dim()] if long else reach_of(case, name)
    group = place = torch.zeros((), dtype=torch.int64)
    for dim, (size, step) in enumerate(zip(tensor.shape, reach, strict=True)):
        index = torch.arange(size).reshape([-1 if d == dim else 1 for d in range(tensor.dim())])
        group = group * -(-size // step) + index // step
        place = place * step + index % step
    return Groups(reach, group.expand(tensor.shape), place.expand(tensor.shape))


def reach_of(case: Case, name: str) -> tuple[int, ...]:
    """How far along each dim an element shares a result with the first: 1 for not at all, the size for everywhere.

    A window of two has a reach of 2. Distances are doubled, so it is a power of 2 or the size.
    """
    tensor = case.inputs[name]
    before = answer(case)
    first = _followed(case, name, (0,) * tensor.dim(), before) if before is not None and tensor.numel() else None
    if first is None:
        return (1,) * tensor.dim()
    reach = []
    for dim, size in enumerate(tensor.shape):
        far = 1
        while far < size:
            other = _followed(case, name, tuple(far if d == dim else 0 for d in range(tensor.dim())), before)
            if other is None or not bool((first & other).any()):
                break
            far *= 2
        reach.append(max(min(far, size), 1))
    return tuple(reach)


def _followed(case: Case, name: str, index: tuple[int, ...], before: list[object] | None) -> Tensor | None:
    """Which results change with an element, as a row of bools; None where eager takes no other number there."""
    found = None
    for number in _numbers(case.inputs[name]):
        tensor = case.inputs[name].clone()
        tensor[index] = number
        after = answer(case.replace(inputs={**case.inputs, name: tensor}))
        if before is not None and after is not None:
            changed = _changes(before, after)
            found = changed if found is None or found.shape != changed.shape else found | changed
    return found


def _numbers(tensor: Tensor) -> Iterator[float]:
    """Numbers above and below all of a tensor: a maximum follows the one, a minimum the other."""
    if tensor.dtype == torch.bool:
        yield from (True, False)
        return
    real = (tensor.real if tensor.is_complex() else tensor).to(torch.float64).nan_to_num(0, 0, 0)
    limits = (
        torch.finfo(tensor.dtype) if tensor.is_floating_point() or tensor.is_complex() else torch.iinfo(tensor.dtype)
    )
    yield min(float(real.max()) + 1, limits.max)
    yield max(float(real.min()) - 1, limits.min)


def _changes(before: list[object], after: list[object]) -> Tensor:
    rows = [torch.zeros(1, dtype=torch.bool)]
    for one, other in zip(before, after, strict=False):
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            rows.append(torch.tensor([one != other]))
            continue
        one, other = (_comparable(dense(leaf)) for leaf in (one, other))
        if one.shape != other.shape:
            return torch.ones(1, dtype=torch.bool)
        rows.append(((one != other) & ~(one.isnan() & other.isnan())).reshape(-1))
    return torch.cat(rows)


def _comparable(tensor: Tensor) -> Tensor:
    """The same numbers in a dtype that eager compares: float8 is none."""
    return tensor.to(torch.float32) if tensor.is_floating_point() and tensor.dtype.itemsize == 1 else tensor
