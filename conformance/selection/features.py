"""What a case is like, as a set of small facts: which arguments are given, of what kind, and the shapes of tensors.

Two samples of an op that have the same features are likely to run the same paths of a compiler. The plan of a run
(``selection.plan``) looks for samples whose features are new.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaf_paths

Feature = Hashable

LISTED = 4
"""How long a list of numbers may be for each place in it to be a place of its own; of longer ones the kinds count."""


def features(case: Case) -> frozenset[Feature]:
    """The facts of a case. Numbers count by kind (0, 1, -1, larger, negative, fraction), sizes by 0, 1 and more."""
    found: set[Feature] = {("calls", *(call.target for call in case.program.calls))}
    shapes = []
    for at, call in enumerate(case.program.calls):
        found.add((at, "given", len(call.args), *sorted(call.kwargs)))
        arguments = [*enumerate(call.args), *call.kwargs.items()]
        for name, argument in arguments:
            for path, leaf in leaf_paths(argument):
                place = (at, name, *(step if isinstance(step, str) or step < LISTED else "…" for step in path))
                if isinstance(leaf, Ref) and leaf.name in case.inputs:
                    found.update((place, *fact) for fact in _of_tensor(case.inputs[leaf.name], case.dtype))
                    shapes.append(tuple(case.inputs[leaf.name].shape))
                elif not isinstance(leaf, Ref):
                    found.add((place, *_of_literal(leaf)))
            if isinstance(argument, list | tuple):
                found.add((at, name, "length", len(argument)))
    found.add(("shapes", len(set(shapes)) == 1, len({len(shape) for shape in shapes}) == 1))
    return frozenset(found)


def novelty(facts: Iterable[Feature], met: Mapping[Feature, int]) -> float:
    """How much of a case is new, where each fact was met so often before: once more says less each time."""
    # Rounded once: the order of a set differs from process to process, and so would that of cases close together.
    return math.fsum(1 / (1 + met.get(fact, 0)) ** 2 for fact in facts)


def unlike(cases: Sequence[Case], most: int) -> list[Case]:
    """Some of the cases: the first, then by turns the one with the most that is new beside those before it."""
    facts = {at: features(case) for at, case in enumerate(cases)}
    met: Counter[Feature] = Counter()
    chosen: list[int] = []
    while facts and len(chosen) < most:
        best = max(facts, key=lambda at: (novelty(facts[at], met), -at)) if chosen else 0
        chosen.append(best)
        met.update(facts.pop(best))
    return [cases[at] for at in chosen]


def _of_tensor(tensor: Tensor, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield "rank", tensor.ndim
    for dim, size in enumerate(tensor.shape):
        if size < 2:
            yield "size", dim, size
    if tensor.dtype != getattr(torch, dtype, tensor.dtype):
        yield "dtype", str(tensor.dtype)
    if not tensor.is_contiguous():
        yield ("strided",)
    if tensor.is_conj() or tensor.is_neg():
        yield ("lazy",)
    yield "square", tensor.ndim >= 2 and tensor.shape[-1] == tensor.shape[-2]


def _of_literal(value: Any) -> tuple[Any, ...]:
    """A number by its kind; anything else as it is."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, value
    if isinstance(value, complex):
        return ("complex", value.imag == 0)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return type(value).__name__, str(value)
        kind = value if value in (0, 1, -1) else "fraction" if value != int(value) else "more"
        return type(value).__name__, kind, value < 0
    return type(value).__name__, str(value)
