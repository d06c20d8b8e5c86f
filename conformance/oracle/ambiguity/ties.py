"""Eager with another choice among equal elements, where PyTorch leaves the choice open.

An unstable sort may give equal elements in any order, and topk, kthvalue, median and mode the index of any element
that equals the one asked for. What follows from the choice differs with it: indices, and the places gradients go to.
So eager is run again, and at each such op takes a choice that the backend's results show, if it is a right one
(distinct places that hold the same values), or else that of a stable sort. Either is an answer PyTorch could have
given, and a backend is right that gives what follows from it. A place that holds no equal element follows from none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.equality import same_values
from torchstone.conformance.oracle.op_traits.right_answers import ORDERS_TIES, PICKS_ONE_OF_TIES

aten = torch.ops.aten


class TieBreaking(ComputingMode):
    """Runs eager with ties broken as ``given`` index tensors break them, where they are right.

    ``made``: whether a tie was broken otherwise than eager breaks it.
    """

    def __init__(self, given: Iterable[Any] = ()) -> None:
        super().__init__()
        self._given = [t for t in given if isinstance(t, Tensor) and t.dtype == torch.int64]
        self.made = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        breaks_ties = ORDERS_TIES.holds(func) or PICKS_ONE_OF_TIES.holds(func)
        if not breaks_ties or not args[0].dim() or not out[1].numel():
            return out
        schema = schema_of(func).arguments
        bound = {a.name: a.default_value for a in schema if a.has_default_value()}
        bound |= dict(zip([a.name for a in schema], args, strict=False)) | (kwargs or {})
        if bound.get("stable"):
            return out
        right = _order if ORDERS_TIES.holds(func) else _one
        for choice in [*self._given, _stable(func, bound, out[0])]:
            if choice.shape == out[1].shape and _inside(choice, args[0].shape[bound["dim"]]):
                picked = right(choice, out[0], func, bound)
                if picked is not None:
                    self.made |= not torch.equal(choice, out[1])
                    return picked, choice.clone()
        return out


def _inside(choice: Tensor, size: int) -> bool:
    return bool(((choice >= 0) & (choice < size)).all())


def _order(choice: Tensor, values: Tensor, func: Any, bound: dict[str, Any]) -> Tensor | None:
    """What the places hold, if they are distinct and hold the values, in their order where that is asked for."""
    picked, dim = bound["self"].gather(bound["dim"], choice), bound["dim"]
    unordered = not bound.get("sorted", True)
    same = same_values(picked.sort(dim).values, values.sort(dim).values) if unordered else same_values(picked, values)
    distinct = choice.sort(dim).values.diff(dim=dim) != 0
    return picked if bool(same.all()) and bool(distinct.all()) else None


def _one(choice: Tensor, values: Tensor, func: Any, bound: dict[str, Any]) -> Tensor | None:
    """What the one place of each row holds, if it holds the value.

    Eager's mode sorts by ``<``, which is no order where there are NaN: any element may come of that.
    """
    source, dim, keepdim = bound["self"], bound["dim"], bound["keepdim"]
    picked = source.gather(dim, choice if keepdim else choice.unsqueeze(dim))
    picked = picked if keepdim else picked.squeeze(dim)
    free = (source != source).any(dim, keepdim=keepdim) & (func is aten.mode.default)
    return picked if bool((same_values(picked, values) | free).all()) else None


def _stable(func: Any, bound: dict[str, Any], values: Tensor) -> Tensor:
    """The choice of a stable sort; of the equal elements that a mode is, the last."""
    source, dim = bound["self"], bound["dim"]
    if ORDERS_TIES.holds(func):
        falling = bool(bound.get("largest", bound.get("descending", False)))
        return source.sort(dim=dim, descending=falling, stable=True).indices.narrow(dim, 0, values.shape[dim])
    values = values if bound["keepdim"] else values.unsqueeze(dim)
    size = source.shape[dim]
    if func is aten.mode.default:
        place = size - 1 - (source == values).flip(dim).to(torch.uint8).argmax(dim, keepdim=True)
    else:
        place = source.sort(dim=dim, stable=True).indices.narrow(dim, bound.get("k", (size + 1) // 2) - 1, 1)
    return place if bound["keepdim"] else place.squeeze(dim)
