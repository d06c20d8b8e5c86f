"""Ops that read or write by index: ``x[i]``, ``x[i] = v``, gather, scatter, index_select, embedding and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from torchstone.conformance.program.literals import leaves, map_leaves
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.rules import OpRule, rules_for

NEGATIVE = 40
"""Of a hundred index tensors that may, how many have places counted from the end."""


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table, and for the assignments that the database does not have."""
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)
    for name, drawn in ASSIGNMENTS:
        target = f"torch.Tensor.{name}"
        for rule in rules_for("__getitem__", drawn, target):  # which takes the same dtypes
            yield replace(rule, op=name, exact=True, jumps=False, inplace=target, is_view=False)


def _operand(draft: Draft) -> tuple[DraftValue, int, int]:
    operand = draft.tensor(ranks=(1, 2, 3), where=lambda value: value.tensor.numel() > 0)
    dim = draft.axis(operand)
    if operand.tensor.numel() == 0:
        raise CallRejected("nothing to index")
    return operand, dim, operand.shape[dim]


def _indices(
    draft: Draft, shape: Sequence[int], bound: int, distinct: bool = False, from_the_end: bool = False
) -> DraftValue:
    """Draw an index tensor with elements below ``bound``; ``distinct`` where a repeated one would leave a race.

    ``from_the_end``: the op takes negative ones too, and some tensors have them.
    """
    generator = torch.Generator().manual_seed(draft.choices.integer(0, 2**31 - 1))
    if distinct:
        drawn = torch.randperm(bound, generator=generator)[: shape[0]]
    else:
        drawn = torch.randint(0, bound, tuple(shape), generator=generator)
    if from_the_end and draft.choices.chance(NEGATIVE):
        drawn = drawn - bound * torch.randint(0, 2, drawn.shape, generator=generator)
    return draft.given(drawn)


def _index(draft: Draft, operand: DraftValue, masks: bool) -> Any:
    """Draw what stands between the brackets: a mask, or for some dims a number, a slice, places or a mask, and None for
    new ones. No place stands there twice.

    The places of several dims go together; those of the first dim differ, so that no two writes go to one place.
    Beside a mask, which has as many as it happens to have, there is one.
    """
    choices, dims = draft.choices, operand.dim
    if masks and choices.chance(20):
        return draft.tensor(shape=operand.shape[: choices.integer(1, dims)], dtype=torch.bool)
    last = dims > 1 and choices.chance(25)  # the dims at the end
    count = choices.integer(1, dims - 1 if last else dims)
    bounds = operand.shape[dims - count :] if last else operand.shape[:count]
    kinds = [choices.weighted((("slice", 45), ("number", 25), ("places", 20), ("mask", 10 * masks))) for _ in bounds]
    masked = kinds.index("mask") if "mask" in kinds else None
    length = choices.integer(1, max(min(bounds), 1)) if masked is None else 1
    places = 0
    items: list[Any] = [...] if last else []
    for at, (kind, bound) in enumerate(zip(kinds, bounds, strict=True)):
        if choices.chance(5):
            items.append(None)
        if at == masked:
            items.append(draft.tensor(shape=(bound,), dtype=torch.bool))
        elif kind in ("places", "mask") or (kind == "number" and not bound):
            items.append(_indices(draft, [length], bound, distinct=not places, from_the_end=True))
            places += 1
        elif kind == "number":
            items.append(choices.integer(-bound, bound - 1))
        else:
            start, stop = choices.integer(-1, 2), choices.pick((None, -1, bound, 1))
            items.append(slice(start or None, stop, choices.pick((None, None, 2, 3))))
    return tuple(items) if len(items) > 1 or choices.chance(30) else items[0]


def _getitem(draft: Draft) -> Arguments:
    operand, _, _ = _operand(draft)
    return Arguments((operand, _index(draft, operand, masks=False)))


def _setitem(draft: Draft) -> Arguments:
    operand, _, _ = _operand(draft)
    index = _index(draft, operand, masks=True)
    if isinstance(index, DraftValue) and index.dtype == torch.bool:
        shape: Sequence[int] = operand.shape[index.dim :] if draft.choices.chance(50) else ()
    elif any(isinstance(leaf, DraftValue) and leaf.dtype == torch.bool for leaf in leaves(index)):
        shape = ()  # how many elements a mask has is in no shape
    else:
        filled = map_leaves(index, lambda leaf: leaf.tensor if isinstance(leaf, DraftValue) else leaf)
        shape = operand.tensor[filled].shape
    if draft.choices.chance(40):
        return Arguments((operand, index, draft.scalar(operand.dtype)))
    return Arguments((operand, index, _broadcast_to(draft, operand, shape)))


def _broadcast_to(draft: Draft, operand: DraftValue, shape: Sequence[int]) -> DraftValue:
    """Draw what may be written to a part of ``operand`` that has this shape: leading dims may lack, others be 1."""
    keep = draft.choices.integer(0, len(shape)) if draft.choices.chance(30) else 0
    size = [1 if draft.choices.chance(20) else length for length in shape[keep:]]
    value = draft.tensor(shape=size, dtype=operand.dtype if draft.choices.chance(80) else None)
    if not torch.can_cast(value.dtype, operand.dtype):
        raise CallRejected(f"a {value.dtype} beyond what {operand.dtype} holds")
    return value


def _copy(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, _broadcast_to(draft, operand, operand.shape)))


def _index_put(draft: Draft) -> Arguments:
    operand, _, _ = _operand(draft)
    accumulate, count = draft.choices.chance(50), draft.choices.integer(1, operand.dim)
    if draft.choices.chance(20):
        index = (draft.tensor(shape=operand.shape[:count], dtype=torch.bool),)
        value = draft.tensor(shape=(), dtype=operand.dtype)
    else:
        length = draft.choices.integer(1, 6 if accumulate else operand.shape[0])
        first = _indices(draft, [length], operand.shape[0], distinct=not accumulate, from_the_end=True)
        index = (first, *(_indices(draft, [length], bound, from_the_end=True) for bound in operand.shape[1:count]))
        value = draft.tensor(shape=(length, *operand.shape[count:]), dtype=operand.dtype)
    return Arguments((operand, index, value), {"accumulate": True} if accumulate else {})


def _gather(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    size = [draft.choices.integer(1, length) for length in operand.shape]
    return Arguments((operand, dim, _indices(draft, size, bound)))


def _take_along_dim(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    size = list(operand.shape)
    size[dim] = draft.choices.integer(1, 3)
    return Arguments((operand, _indices(draft, size, bound), dim))


def _index_select(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    return Arguments((operand, dim, _indices(draft, [draft.choices.integer(0, 4)], bound)))


def _take(draft: Draft) -> Arguments:
    operand, _, _ = _operand(draft)
    size = [draft.choices.integer(1, 3) for _ in range(draft.choices.integer(0, 2))]
    return Arguments((operand, _indices(draft, size, operand.tensor.numel(), from_the_end=True)))


def _scatter_add(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    index = _indices(draft, operand.shape, bound)
    return Arguments((operand, dim, index, draft.tensor(shape=operand.shape, dtype=operand.dtype)))


def _index_write(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    count = draft.choices.integer(1, bound)
    size = list(operand.shape)
    size[dim] = count
    index = _indices(draft, [count], bound, distinct=True)
    return Arguments((operand, dim, index, draft.tensor(shape=size, dtype=operand.dtype)))


def _index_fill(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    index = _indices(draft, [draft.choices.integer(0, bound)], bound, from_the_end=True)
    return Arguments((operand, dim, index, draft.scalar(operand.dtype)))


def _select_scatter(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    size = [length for at, length in enumerate(operand.shape) if at != dim % operand.dim]
    source = draft.tensor(shape=size, dtype=operand.dtype)
    return Arguments((operand, source, dim, draft.choices.integer(0, bound - 1)))


def _slice_scatter(draft: Draft) -> Arguments:
    operand, dim, bound = _operand(draft)
    start = draft.choices.integer(0, bound - 1)
    end = draft.choices.integer(start + 1, bound)
    size = list(operand.shape)
    size[dim] = end - start
    return Arguments((operand, draft.tensor(shape=size, dtype=operand.dtype), dim, start, end))


def _embedding(draft: Draft) -> Arguments:
    table = draft.tensor(ranks=(2,), where=lambda value: value.tensor.numel() > 0)
    if table.tensor.numel() == 0:
        raise CallRejected("an empty table")
    size = [draft.choices.integer(1, 3) for _ in range(draft.choices.integer(0, 2))]
    return Arguments((_indices(draft, size, table.shape[0]), table))


def _searchsorted(draft: Draft) -> Arguments:
    boundaries = torch.arange(draft.choices.integer(1, 5), dtype=torch.float32)
    return Arguments((draft.given(boundaries), draft.tensor(dtype=torch.float32)))


def _bucketize(draft: Draft) -> Arguments:
    boundaries, operand = _searchsorted(draft).args
    return Arguments((operand, boundaries))


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("__getitem__", _getitem),
    ("index_put", _index_put),
    ("gather", _gather),
    ("take_along_dim", _take_along_dim),
    ("index_select", _index_select),
    ("take", _take),
    ("scatter_add", _scatter_add),
    ("index_add", _index_write),
    ("index_copy", _index_write),
    ("index_fill", _index_fill),
    ("select_scatter", _select_scatter),
    ("slice_scatter", _slice_scatter),
    ("nn.functional.embedding", _embedding),
    ("searchsorted", _searchsorted),
    ("bucketize", _bucketize),
)

ASSIGNMENTS: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (("__setitem__", _setitem), ("copy_", _copy))
