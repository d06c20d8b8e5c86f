"""Use one input where the program takes two of the same shape and dtype, neither of which it writes to.

What is read as it is written fails in a way of its own, and PyTorch leaves much of it open.
"""

from __future__ import annotations

import itertools

from torchstone.compiler._torch.tensors import version
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.reducers.edit import ignore_warnings, map_arguments
from torchstone.reducers.problem import Rewrite


def merge_inputs(case: Case) -> Rewrite[Case]:
    """Try every pair of inputs, with either one of them standing in for both."""
    written, moved = _written(case), True
    while moved:
        moved = False
        for kept, gone in itertools.permutations(case.program.inputs, 2):
            if not _alike(case, kept, gone) or {kept, gone} & written:
                continue

            def replaced(leaf: object, kept: str = kept, gone: str = gone) -> object:
                return Ref(kept) if isinstance(leaf, Ref) and leaf.name == gone else leaf

            candidate = map_arguments(case, replaced)
            if (yield candidate):
                case, written, moved = candidate, _written(candidate), True
                break


def _alike(case: Case, one: str, other: str) -> bool:
    first, second = case.inputs[one], case.inputs[other]
    return first.shape == second.shape and first.dtype == second.dtype


def _written(case: Case) -> set[str]:
    """The inputs that the program writes to; all of them where eager does not run it."""
    args = case.fresh_args()
    before = [version(tensor) for tensor in args]
    try:
        with ignore_warnings():
            case.program(*args)
    except Exception:
        return set(case.program.inputs)
    return {name for name, tensor, was in zip(case.program.inputs, args, before, strict=True) if version(tensor) != was}
