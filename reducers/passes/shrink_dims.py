"""Slice the inputs: dims that belong together go to 1, to a half, or down by one, together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.reducers.edit import map_arguments, trim, with_inputs
from torchstone.reducers.problem import Rewrite

Group = tuple[tuple[str, int], ...]
"""Dims to shrink at once: (input, dim) pairs of one length."""


def shrink_dims(case: Case) -> Rewrite[Case]:
    """Try every group of dims of one length, the longest first, with the integers in the program following or not."""
    moved = True
    while moved:
        moved = False
        for length, group in _groups(case):
            for start, stop in _pieces(length):
                smaller = _sliced(case, group, start, stop)
                for candidate in (_renumbered(smaller, length, stop - start), smaller):
                    if candidate is not None and (yield candidate):
                        case, moved = candidate, True
                        break
                if moved:
                    break
            if moved:
                break
        if not moved:
            for candidate in _divided(case):
                if (yield candidate):
                    case, moved = candidate, True
                    break


def _divided(case: Case) -> Iterator[Case]:
    """Yield the case with two dims of an input divided by one number: some products of sizes must stay in step."""
    for name, tensor in case.inputs.items():
        for one, other in itertools.combinations([dim for dim, length in enumerate(tensor.shape) if length > 1], 2):
            common = math.gcd(tensor.shape[one], tensor.shape[other])
            for factor in (n for n in range(common, 1, -1) if common % n == 0):
                smaller = tensor
                for dim in (one, other):
                    smaller = smaller.narrow(dim, 0, tensor.shape[dim] // factor)
                divided = with_inputs(case, {name: trim(smaller)})
                yield divided
                for length in {tensor.shape[one], tensor.shape[other]}:
                    renumbered = _renumbered(divided, length, length // factor)
                    if renumbered is not None:
                        yield renumbered


def _groups(case: Case) -> Iterator[tuple[int, Group]]:
    dims = [(name, dim, length) for name, t in case.inputs.items() for dim, length in enumerate(t.shape) if length > 1]
    for length in sorted({length for _, _, length in dims}, reverse=True):
        same = [(name, dim) for name, dim, other in dims if other == length]
        seen: set[Group] = set()
        # All of that length; those that broadcasting lines up; those at one place from the front; each alone.
        rank = {name: tensor.dim() for name, tensor in case.inputs.items()}
        for keys in ([0] * len(same), [dim - rank[name] for name, dim in same], [dim for _, dim in same], same):
            for key in dict.fromkeys(keys):
                group = tuple(pair for pair, other in zip(same, keys, strict=True) if other == key)
                if group not in seen:
                    seen.add(group)
                    yield length, group


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    """Yield slices to try: one element, a half, all but one. Where the failing element lies is not known."""
    tried: set[tuple[int, int]] = set()
    singles = range(length) if length <= 8 else (0, length - 1)
    half = length // 2
    for piece in (*((at, at + 1) for at in singles), (0, half), (length - half, length), (0, length - 1), (1, length)):
        if piece not in tried and piece[1] - piece[0] < length:
            tried.add(piece)
            yield piece


def _sliced(case: Case, group: Group, start: int, stop: int) -> Case:
    inputs: dict[str, Tensor] = {}
    for name, dim in group:
        tensor = inputs.get(name, case.inputs[name])
        inputs[name] = tensor.narrow(dim, start, stop - start)
    return with_inputs(case, {name: trim(tensor) for name, tensor in inputs.items()})


def _renumbered(case: Case, length: int, shorter: int) -> Case | None:
    """Return the case with every integer literal ``length`` made ``shorter``; None if there is none."""
    found = False

    def renumber(leaf: object) -> object:
        nonlocal found
        if type(leaf) is int and leaf == length and not isinstance(leaf, Ref):
            found = True
            return shorter
        return leaf

    renumbered = map_arguments(case, renumber)
    return renumbered if found else None
