"""In which precision a program computes: that of each of its steps, and not that of its inputs or results alone.

What a step gives that rounds is right to within the rounding of the step's own dtype. A cast to a wider dtype changes
nothing in that: a number that was computed in float32 is one of float32 still. Nor do the inputs' dtypes: what a
program computes in float64 of numbers in float32 is one of float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.exactness.steps import combines_by_argument, never_rounds, written
from torchstone.conformance.oracle.tolerances import real_dtype
from torchstone.conformance.oracle.ulp import precision


def coarser(*dtypes: torch.dtype | None) -> torch.dtype | None:
    """The real dtype of fewest digits; None stands for what was not rounded."""
    known = [real_dtype(dtype) for dtype in dtypes if dtype is not None]
    return min(known, key=precision, default=None)


@dataclass(frozen=True)
class _Numbers:
    """What is in a storage: the coarsest dtype that any of it was rounded to, and the inputs that came here as they
    are."""

    rounded: torch.dtype | None = None
    inputs: frozenset[int] = frozenset()

    def __or__(self, other: _Numbers) -> _Numbers:
        return _Numbers(coarser(self.rounded, other.rounded), self.inputs | other.inputs)


class RecordPrecision(TorchDispatchMode):
    """Records the dtypes that steps round to.

    ``calls``: the coarsest of each call of the program, if any of its steps rounds. ``used``: the coarsest of the steps
    that are given an input as it is, by the number of the first input in its memory.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        super().__init__()
        self.calls: dict[int, torch.dtype] = {}
        self.used: dict[int, torch.dtype] = {}
        self._call = -1
        self._found: dict[Any, _Numbers] = {}
        self._alive: list[Tensor] = []  # memory that is given back may hold other numbers next
        for number, arg in enumerate(args):
            if _inexact(arg):
                self._found.setdefault(_place(arg), _Numbers(inputs=frozenset({number})))
                self._alive.append(arg)

    def at_call(self, number: int) -> None:
        """Told by the program that its call of this number begins."""
        self._call = number

    def rounded(self, value: Any) -> torch.dtype | None:
        """The coarsest real dtype that numbers of a tensor were rounded to, None if they are what inputs hold."""
        return self._found[_place(value)].rounded if _inexact(value) and _place(value) in self._found else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if _inexact(leaf)]
        out = func(*args, **kwargs)
        results = [leaf for leaf in tree_leaves((out, written(func, args, kwargs))) if _inexact(leaf)]
        come = _Numbers()
        for leaf in given:
            come |= self._found.get(_place(leaf), _Numbers())
        exact = never_rounds(func) and not combines_by_argument(func, args, kwargs)
        for leaf in results:
            self._alive.append(leaf)
            if exact:  # where it narrows what was rounded, the nearest number may be either of two
                numbers = _Numbers(coarser(come.rounded, leaf.dtype if come.rounded else None), come.inputs)
            else:
                numbers = _Numbers(coarser(come.rounded, leaf.dtype))
                self._rounds_to(leaf.dtype, come.inputs)
            before = self._found.get(_place(leaf), _Numbers())
            self._found[_place(leaf)] = numbers if leaf.numel() == _elements(leaf) and not exact else before | numbers
        return out

    def _rounds_to(self, dtype: torch.dtype, inputs: frozenset[int]) -> None:
        for found, key in ((self.calls, self._call), *((self.used, number) for number in inputs)):
            found[key] = coarser(found.get(key), dtype) or dtype


def _inexact(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _place(value: Tensor) -> Any:
    """What tells the memory of a tensor from others."""
    return storage_key(value.untyped_storage()) if value.layout is torch.strided else id(value)


def _elements(value: Tensor) -> int:
    """How many elements a tensor's memory has."""
    if value.layout is not torch.strided:
        return value.numel()
    return value.untyped_storage().nbytes() // value.element_size()
