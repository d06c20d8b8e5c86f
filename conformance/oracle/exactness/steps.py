"""What is true of every step of a program: a dispatch mode that asks, and the question whether steps round."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name, schema_of
from torchstone.conformance.oracle.op_traits.rounding import NEVER_ROUNDS


@functools.cache
def never_rounds(func: Any) -> bool:
    """Whether an operator's results are the same numbers in any precision: it selects, moves, compares or rounds to
    integers."""
    return func.is_view or NEVER_ROUNDS.holds(func) or _copies_view(base_name(func))


def combines_by_argument(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operator that else moves numbers is told to add or multiply them: ``put(accumulate=True)``."""
    names = [argument.name for argument in schema_of(func).arguments]
    if "accumulate" not in names and "reduce" not in names:
        return False
    given = dict(zip(names, args, strict=False)) | kwargs
    return bool(given.get("accumulate")) or given.get("reduce") is not None


def _copies_view(name: str) -> bool:
    """Whether an operator is the copying form of a view, such as ``permute_copy``."""
    view = getattr(torch.ops.aten, name.removesuffix("_copy"), None) if name.endswith("_copy") else None
    return view is not None and any(getattr(view, overload).is_view for overload in view.overloads())


class EveryStep(ComputingMode):
    """Asks ``holds`` of every operator that runs inside it. ``always`` says whether all answers were yes."""

    def __init__(self, holds: Callable[[Any], bool]) -> None:
        super().__init__()
        self.holds = holds
        self.always = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        self.always = self.always and self.holds(func) and not combines_by_argument(func, args, kwargs)
        return func(*args, **kwargs)
