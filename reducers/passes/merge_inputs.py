"""Use one input where the program takes two of the same shape and dtype."""

from __future__ import annotations

import itertools

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.reducers.edit import map_arguments
from torchstone.reducers.problem import Rewrite


def merge_inputs(case: Case) -> Rewrite[Case]:
    """Try every pair of inputs, with either one of them standing in for both."""
    moved = True
    while moved:
        moved = False
        for kept, gone in itertools.permutations(case.program.inputs, 2):
            if not _alike(case, kept, gone):
                continue

            def replaced(leaf: object, kept: str = kept, gone: str = gone) -> object:
                return Ref(kept) if isinstance(leaf, Ref) and leaf.name == gone else leaf

            candidate = map_arguments(case, replaced)
            if (yield candidate):
                case, moved = candidate, True
                break


def _alike(case: Case, one: str, other: str) -> bool:
    first, second = case.inputs[one], case.inputs[other]
    return first.shape == second.shape and first.dtype == second.dtype
