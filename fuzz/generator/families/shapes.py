"""Views and the ops that move elements about: reshape, permute, slice, cat, repeat, pad, flip."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torchstone.fuzz.generator import values
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.rules import OpRule, rules_for


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table."""
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


def _regrouped(draft: Draft, size: Sequence[int]) -> list[int]:
    """Draw another shape with the same number of elements, by merging, splitting and inserting dims."""
    shape = list(size)
    for _ in range(draft.choices.integer(1, 3)):
        kind = draft.choices.pick(("merge", "split", "insert"))
        if kind == "merge" and len(shape) >= 2:
            at = draft.choices.integer(0, len(shape) - 2)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split" and shape:
            at = draft.choices.integer(0, len(shape) - 1)
            divisors = [n for n in range(1, shape[at] + 1) if shape[at] % n == 0] or [1]
            factor = draft.choices.pick(divisors)
            shape[at : at + 1] = [factor, shape[at] // factor]
        elif len(shape) < 5:
            shape.insert(draft.choices.integer(0, len(shape)), 1)
    if shape and math.prod(size) > 0 and draft.choices.chance(25):
        shape[draft.choices.integer(0, len(shape) - 1)] = -1
    return shape


def _reshape(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, _regrouped(draft, operand.shape)))


def _view(draft: Draft) -> Arguments:
    operand = draft.tensor(where=lambda value: value.tensor.is_contiguous())
    return Arguments((operand, _regrouped(draft, operand.shape)))


def _permute(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.choices.shuffled(list(reversed(range(operand.dim))))))


def _two_axes(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.axis(operand), draft.axis(operand)))


def _axis(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand, draft.axis(operand)))


def _unsqueeze(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.choices.integer(-operand.dim - 1, operand.dim)))


def _expand(draft: Draft) -> Arguments:
    operand = draft.tensor(where=lambda value: value.dim < 4)
    lead = [draft.choices.integer(1, 3) for _ in range(draft.choices.integer(0, 2))]
    size = [draft.choices.integer(1, 4) if length == 1 else length for length in operand.shape]
    keep = [-1 if draft.choices.chance(20) else length for length in size]
    return Arguments((operand, [*lead, *(keep if draft.choices.chance(20) else size)]))


def _broadcast_to(draft: Draft) -> Arguments:
    operand = draft.tensor(where=lambda value: value.dim < 4)
    size = [draft.choices.integer(1, 4) if length == 1 else length for length in operand.shape]
    return Arguments((operand, [draft.choices.integer(1, 3), *size]))


def _expand_as(draft: Draft) -> Arguments:
    other = draft.tensor()
    return Arguments((draft.tensor(shape=[1 if draft.choices.chance(40) else n for n in other.shape]), other))


def _reshape_as(draft: Draft) -> Arguments:
    other = draft.tensor()
    return Arguments((draft.tensor(shape=[math.prod(other.shape)]), other))


def _flatten(draft: Draft) -> Arguments:
    operand = draft.tensor()
    first = draft.choices.integer(0, max(operand.dim - 1, 0))
    return Arguments((operand, first, draft.choices.integer(first, max(operand.dim - 1, 0))))


def _unflatten(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3))
    dim = draft.axis(operand)
    length = operand.shape[dim]
    factor = draft.choices.pick([n for n in range(1, length + 1) if length % n == 0] or [1])
    return Arguments((operand, dim, [factor, length // factor]))


def _nonempty_axis(draft: Draft) -> tuple[DraftValue, int]:
    operand = draft.tensor(ranks=(1, 2, 3, 4), where=lambda value: value.tensor.numel() > 0)
    dim = draft.axis(operand)
    if operand.shape[dim] == 0:
        raise CallRejected("the dim is empty")
    return operand, dim


def _select(draft: Draft) -> Arguments:
    operand, dim = _nonempty_axis(draft)
    length = operand.shape[dim]
    return Arguments((operand, dim, draft.choices.integer(-length, length - 1)))


def _narrow(draft: Draft) -> Arguments:
    operand, dim = _nonempty_axis(draft)
    start = draft.choices.integer(0, operand.shape[dim] - 1)
    return Arguments((operand, dim, start, draft.choices.integer(0, operand.shape[dim] - start)))


def _slice(draft: Draft) -> Arguments:
    operand, dim = _nonempty_axis(draft)
    length = operand.shape[dim]
    start = draft.choices.integer(-length, length)
    return Arguments((operand, dim, start, draft.choices.integer(-length, length + 2), draft.choices.integer(1, 3)))


def _flip(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand, draft.axes(operand)))


def _roll(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    if draft.choices.chance(30):
        return Arguments((operand, draft.choices.integer(-5, 5)))
    dims = draft.axes(operand)
    return Arguments((operand, [draft.choices.integer(-3, 5) for _ in dims], dims))


def _rot90(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(2, 3, 4))
    dims = draft.choices.shuffled(range(operand.dim))[:2]
    return Arguments((operand, draft.choices.integer(-3, 5), dims))


def _movedim(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand, draft.axis(operand), draft.axis(operand)))


def _pieces(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand, draft.choices.integer(1, 4), draft.axis(operand)))


def _split_sizes(draft: Draft) -> Arguments:
    operand, dim = _nonempty_axis(draft)
    length = operand.shape[dim]
    cuts = sorted(draft.choices.integer(0, length) for _ in range(draft.choices.integer(1, 3)))
    return Arguments((operand, [end - start for start, end in itertools.pairwise((0, *cuts, length))], dim))


def _diagonal(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(2, 3, 4))
    first, second = draft.choices.shuffled(range(operand.dim))[:2]
    return Arguments((operand, draft.choices.integer(-2, 2), first, second))


def _offset(*ranks: int) -> Callable[[Draft], Arguments]:
    return lambda draft: Arguments((draft.tensor(ranks=ranks), draft.choices.integer(-2, 2)))


def _repeat(draft: Draft) -> Arguments:
    operand = draft.tensor(where=lambda value: value.dim <= 3)
    count = operand.dim + draft.choices.integer(0, 1)
    return Arguments((operand, [draft.choices.integer(0 if draft.choices.chance(10) else 1, 3) for _ in range(count)]))


def _repeat_interleave(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3))
    return Arguments((operand, draft.choices.integer(1, 3), draft.axis(operand)))


def _pad(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    amounts = [draft.choices.integer(-1, 2) for _ in range(2 * draft.choices.integer(1, operand.dim))]
    return Arguments((operand, amounts), {"value": draft.scalar(operand.dtype)} if draft.choices.chance(50) else {})


def _unfold(draft: Draft) -> Arguments:
    operand, dim = _nonempty_axis(draft)
    return Arguments((operand, dim, draft.choices.integer(1, operand.shape[dim]), draft.choices.integer(1, 3)))


def _alike(draft: Draft) -> list[DraftValue]:
    first = draft.tensor(ranks=(1, 2, 3, 4))
    others = [draft.tensor(shape=first.shape) for _ in range(draft.choices.integer(0, 2))]
    return _some_or_many(draft, [first, *others])


def _some_or_many(draft: Draft, parts: list[DraftValue]) -> list[DraftValue]:
    """These in another order; of a hundred lists some are long, and have them more than once."""
    long = draft.choices.chance(values.LONG)
    more = [draft.choices.pick(parts) for _ in range(values.large_size(draft.choices) - len(parts))] if long else []
    return [*draft.choices.shuffled(parts), *more]


def _cat(draft: Draft) -> Arguments:
    first = draft.tensor(ranks=(1, 2, 3, 4))
    dim = draft.axis(first)
    parts = [first]
    for _ in range(draft.choices.integer(0, 2)):
        size = list(first.shape)
        size[dim] = draft.choices.integer(0 if draft.choices.chance(10) else 1, 4)

        def joins(value: DraftValue, size: list[int] = size) -> bool:
            return value.dim == len(size) and all(
                a == b or at == dim % len(size) for at, (a, b) in enumerate(zip(value.shape, size, strict=True))
            )

        at_hand = any(joins(value) for value in draft.values) and draft.choices.chance(50)
        parts.append(draft.tensor(where=joins) if at_hand else draft.tensor(shape=size))
    return Arguments((_some_or_many(draft, parts), dim))


def _stack(draft: Draft) -> Arguments:
    parts = _alike(draft)
    return Arguments((parts, draft.choices.integer(0, parts[0].dim)))


def _joined(draft: Draft) -> Arguments:
    return Arguments((_alike(draft),))


def _one(*ranks: int) -> Callable[[Draft], Arguments]:
    return lambda draft: Arguments((draft.tensor(ranks=ranks or None),))


def _like_new(fill: bool) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor()
        size: Any = [draft.choices.integer(0, 3) for _ in range(draft.choices.integer(0, 3))]
        return Arguments((operand, size, draft.scalar(operand.dtype)) if fill else (operand, size))

    return draw


def _complex(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(dtype=torch.complex64),))


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("reshape", _reshape),
    ("view", _view),
    ("permute", _permute),
    ("transpose", _two_axes),
    ("t", _one(0, 1, 2)),
    ("squeeze", _axis),
    ("unsqueeze", _unsqueeze),
    ("expand", _expand),
    ("expand_as", _expand_as),
    ("broadcast_to", _broadcast_to),
    ("reshape_as", _reshape_as),
    ("flatten", _flatten),
    ("unflatten", _unflatten),
    ("ravel", _one()),
    ("select", _select),
    ("narrow", _narrow),
    ("slice", _slice),
    ("flip", _flip),
    ("fliplr", _one(2, 3)),
    ("flipud", _one(1, 2, 3)),
    ("roll", _roll),
    ("rot90", _rot90),
    ("movedim", _movedim),
    ("chunk", _pieces),
    ("split", _pieces),
    ("split_with_sizes", _split_sizes),
    ("tensor_split", _pieces),
    ("unbind", _axis),
    ("diagonal", _diagonal),
    ("diag", _offset(1, 2)),
    ("diag_embed", _offset(1, 2)),
    ("diagflat", _offset(0, 1, 2)),
    ("tril", _offset(2, 3)),
    ("triu", _offset(2, 3)),
    ("repeat", _repeat),
    ("tile", _repeat),
    ("repeat_interleave", _repeat_interleave),
    ("nn.functional.pad.constant", _pad),
    ("constant_pad_nd", _pad),
    ("unfold", _unfold),
    ("cat", _cat),
    ("stack", _stack),
    ("hstack", _joined),
    ("vstack", _joined),
    ("column_stack", _joined),
    ("atleast_1d", _one(0, 1)),
    ("atleast_2d", _one(0, 1, 2)),
    ("atleast_3d", _one(0, 1, 2, 3)),
    ("new_zeros", _like_new(False)),
    ("new_ones", _like_new(False)),
    ("new_full", _like_new(True)),
    ("view_as_real", _complex),
)
