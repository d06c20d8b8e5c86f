"""Eager with another choice among equal elements, where PyTorch leaves the choice open.

An unstable sort may give equal elements in any order, and topk, kthvalue, median and mode the index of any element
that equals the one asked for. What follows from the choice differs with it: indices, and the places gradients go to.
So eager is run again, and at each such op takes a choice that the backend's results show, if it is a right one
(distinct places that hold the same values), or else that of a stable sort. Either is an answer PyTorch could have
given, and a backend is right that gives what follows from it. A place that holds no equal element follows from none.
Of several NaN in a window, a pool may give the place of the last, as eager does, or of the first, as PyTorch's
decompositions and Inductor do.

Results show a choice as indices, or by what went to the places: a gradient that differs from eager's by an exchange
among equal elements shows which of them took whose place.

    quantile([1, 1], 0.5), of a gradient 2 for the lower:    [2, 0] or [0, 2], and no index among the results
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name, schema_of
from torchstone.conformance.oracle.equality import same_values
from torchstone.conformance.oracle.op_traits.right_answers import ORDERS_TIES, PICKS_ONE_OF_NAN, PICKS_ONE_OF_TIES

aten = torch.ops.aten

WINDOW_DIMS = {"max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3}
"""The last dims of the input, in which a window lies, and which its places count."""

MOST = 64
"""Ways of several exchanges that are tried."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """A result of eager's and the backend's, with the rows that a sort may have put in order as the last dim."""

    eager: Tensor
    actual: Tensor

    def places(self, source: Tensor, dim: int, chosen: Tensor) -> Tensor | None:
        """The places, in ``dim``, of what the backend has where eager has the elements at ``chosen``.

        Of equal elements of ``source`` those with the k-th largest result change places. None if these are no such
        rows.
        """
        rows, at = source.movedim(dim, -1), chosen.movedim(dim, -1)
        if self.eager.shape[-1] != rows.shape[-1] or self.eager.numel() != rows.numel():
            return None
        before, after = (_by_value(rows, result.reshape(rows.shape)) for result in (self.eager, self.actual))
        return torch.empty_like(before).scatter_(-1, before, after).gather(-1, at).movedim(-1, dim)


def _by_value(rows: Tensor, results: Tensor) -> Tensor:
    """The order of rows by their elements, and of equal ones by their results."""
    order = results.argsort(stable=True)
    return order.gather(-1, rows.gather(-1, order).argsort(stable=True))


class TieBreaking(ComputingMode):
    """Runs eager with ties broken as ``given`` index tensors break them, where they are right, or as exchanges do: of
    several each serves one call.

    ``met``: whether there was a choice. ``made``: whether a tie was broken otherwise than eager breaks it. ``choices``:
    what was chosen, for other runs of the same program to choose: by another order than eager's they might exchange
    other elements.
    """

    def __init__(
        self, given: Iterable[Any] = (), exchanges: Iterable[Exchange] = (), choices: Iterable[Tensor] = ()
    ) -> None:
        super().__init__()
        self._given = [t for t in given if isinstance(t, Tensor) and t.dtype == torch.int64]
        self._exchanges = list(exchanges)
        self._before = iter(choices)
        self.met = self.made = False
        self.choices: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if PICKS_ONE_OF_NAN.holds(func):
            return self._first_nan(func, args, kwargs or {}, out)
        breaks_ties = ORDERS_TIES.holds(func) or PICKS_ONE_OF_TIES.holds(func)
        if not breaks_ties or not args[0].dim() or not out[1].numel():
            return out
        schema = schema_of(func).arguments
        bound = {a.name: a.default_value for a in schema if a.has_default_value()}
        bound |= dict(zip([a.name for a in schema], args, strict=False)) | (kwargs or {})
        if bound.get("stable"):
            return out
        self.met = True
        right = _order if ORDERS_TIES.holds(func) else _one
        for choice, exchange in self._candidates(func, bound, out):
            if choice.shape == out[1].shape and _inside(choice, args[0].shape[bound["dim"]]):
                picked = right(choice, out[0], func, bound)
                if picked is not None:
                    self.made |= not torch.equal(choice, out[1])
                    self.choices.append(choice)
                    if exchange is not None and len(self._exchanges) > 1:
                        self._exchanges.remove(exchange)
                    return picked, choice.clone()
        self.choices.append(out[1])
        return out

    def _first_nan(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """The places of the first NaN of each window that has one."""
        x, nan = args[0], torch.isnan(out[0])
        if not bool(nan.any()):
            return out
        dims = x.shape[-WINDOW_DIMS[base_name(func)] :]
        order = -torch.arange(dims.numel(), dtype=torch.float64).reshape(dims)
        first, _ = func(torch.where(torch.isnan(x), order, -torch.inf), *args[1:], **kwargs)
        places = torch.where(nan, -first, out[1].double()).to(out[1].dtype)
        self.met = True
        self.made |= not torch.equal(places, out[1])
        return out[0], places

    def _candidates(self, func: Any, bound: dict[str, Any], out: Any) -> Iterator[tuple[Tensor, Exchange | None]]:
        """Places to choose, and the exchange that they are by."""
        before = next(self._before, None)
        if before is not None:
            yield before, None
        yield from ((choice, None) for choice in self._given)
        for exchange in list(self._exchanges):
            dim, dropped = bound["dim"], not bound.get("keepdim", True)
            chosen = out[1].unsqueeze(dim) if dropped else out[1]
            places = exchange.places(bound["self"], dim, chosen)
            if places is not None:
                yield places.squeeze(dim) if dropped else places, exchange
        yield _stable(func, bound, out[0]), None


def breakings(expected: Iterable[Any], actual: Iterable[Any]) -> Iterator[TieBreaking]:
    """Ways to break ties that a backend's results show beside eager's."""
    expected, actual = list(expected), list(actual)
    yield TieBreaking(actual)
    yield TieBreaking(actual[::-1])  # integer values may pass for indices: from the other end the indices come first
    shown = [list(_exchanges(mine, its)) for mine, its in zip(expected, actual, strict=True)]
    yield from (TieBreaking(exchanges=[one]) for leaf in shown for one in leaf)
    leaves = [leaf for leaf in shown if leaf]
    if len(leaves) > 1:  # calls whose results have gradients of their own
        yield from (TieBreaking(exchanges=several) for several in itertools.islice(itertools.product(*leaves), MOST))


def _exchanges(mine: Any, its: Any) -> Iterator[Exchange]:
    """Exchanges that may have made one result of the other, by the dim that was put in order; none of equal ones."""
    if not (_real(mine) and _real(its)) or mine.shape != its.shape or bool(same_values(mine, its).all()):
        return
    mine, its = mine.double(), its.double()
    yield Exchange(mine.flatten(), its.flatten())
    for dim in range(mine.dim() if mine.dim() > 1 else 0):
        yield Exchange(mine.movedim(dim, -1), its.movedim(dim, -1))


def _real(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout is torch.strided and bool(leaf.dim()) and not leaf.is_complex()


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

    A mode is any of the values that a row has most often. Eager's sorts by ``<``, which is no order where there are
    NaN: any element may come of that.
    """
    source, dim, keepdim = bound["self"], bound["dim"], bound["keepdim"]
    picked = source.gather(dim, choice if keepdim else choice.unsqueeze(dim))
    values = values if keepdim else values.unsqueeze(dim)
    free = same_values(picked, values)
    if func is aten.mode.default:
        free |= (source == picked).sum(dim, True) == (source == values).sum(dim, True)
        free |= (source != source).any(dim, keepdim=True)
    return (picked if keepdim else picked.squeeze(dim)) if bool(free.all()) else None


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
