"""Ops that read or write by index: gather, scatter, index_select, take, embedding and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.rules import OpRule, rules_for


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table."""
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


def _operand(draft: Draft) -> tuple[DraftValue, int, int]:
    operand = draft.tensor(ranks=(1, 2, 3), where=lambda value: value.tensor.numel() > 0)
    dim = draft.axis(operand)
    if operand.tensor.numel() == 0:
        raise CallRejected("nothing to index")
    return operand, dim, operand.shape[dim]


def _indices(draft: Draft, shape: Sequence[int], bound: int, distinct: bool = False) -> DraftValue:
    """Draw an index tensor with elements below ``bound``; ``distinct`` where a repeated one would leave a race."""
    generator = torch.Generator().manual_seed(draft.choices.integer(0, 2**31 - 1))
    if distinct:
        return draft.given(torch.randperm(bound, generator=generator)[: shape[0]])
    return draft.given(torch.randint(0, bound, tuple(shape), generator=generator))


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
    return Arguments((operand, _indices(draft, size, operand.tensor.numel())))


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
    index = _indices(draft, [draft.choices.integer(0, bound)], bound)
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
