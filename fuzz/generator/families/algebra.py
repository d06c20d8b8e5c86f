"""Products and contractions: matmul and its relatives, outer products, einsum, linear, convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchstone.fuzz.generator.draft import Arguments, Draft, DraftValue
from torchstone.fuzz.generator.rules import OpRule, rules_for
from torchstone.fuzz.generator.values import draw_large, large_size

LARGE = 512
"""Elements from which on an operand is multiplied by others as large: compilers have other code for that."""
LARGE_FACTORS = 15
"""Of a hundred products, how many are asked of such."""


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table."""
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


def _size(draft: Draft, beside: DraftValue | None = None) -> int:
    """Draw a size of a result; it is a large one for every other operand ``beside`` it that is large."""
    if beside is not None and beside.tensor.numel() >= LARGE and draft.choices.chance(50):
        return large_size(draft.choices)
    return draft.choices.integer(0 if draft.choices.chance(3) else 1, 5)


def _factor(draft: Draft, ranks: Sequence[int]) -> DraftValue:
    """Draw the first operand of a product."""
    rank = draft.choices.pick(ranks)
    if rank > 1 and draft.choices.chance(LARGE_FACTORS):
        return draft.tensor(shape=draw_large(draft.choices, rank))
    return draft.tensor(ranks=ranks)


def _mm(draft: Draft) -> Arguments:
    left = _factor(draft, (2,))
    return Arguments((left, draft.tensor(shape=(left.shape[1], _size(draft, left)), dtype=left.dtype)))


def _bmm(draft: Draft) -> Arguments:
    left = _factor(draft, (3,))
    batch, _, inner = left.shape
    return Arguments((left, draft.tensor(shape=(batch, inner, _size(draft, left)), dtype=left.dtype)))


def _matmul(draft: Draft) -> Arguments:
    left = _factor(draft, (1, 2, 3, 4))
    if draft.choices.chance(25):
        return Arguments((left, draft.tensor(shape=(left.shape[-1],), dtype=left.dtype)))
    batch = left.shape[:-2][draft.choices.integer(0, max(left.dim - 2, 0)) :]
    batch = tuple(1 if draft.choices.chance(20) else length for length in batch)
    return Arguments((left, draft.tensor(shape=(*batch, left.shape[-1], _size(draft, left)), dtype=left.dtype)))


def _mv(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(2,))
    return Arguments((left, draft.tensor(shape=(left.shape[1],), dtype=left.dtype)))


def _vectors(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1,))
    return Arguments((left, draft.tensor(shape=left.shape, dtype=left.dtype)))


def _outer(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1,))
    return Arguments((left, draft.tensor(ranks=(1,), dtype=left.dtype)))


def _factors(draft: Draft, dtype: Any) -> dict[str, Any]:
    return {name: draft.scalar(dtype) for name in ("beta", "alpha") if draft.choices.chance(25)}


def _addmm(draft: Draft) -> Arguments:
    left, right = _mm(draft).args
    shape = [1 if draft.choices.chance(20) else n for n in (left.shape[0], right.shape[1])]
    return Arguments((draft.tensor(shape=shape, dtype=left.dtype), left, right), _factors(draft, left.dtype))


def _addmv(draft: Draft) -> Arguments:
    left, right = _mv(draft).args
    added = draft.tensor(shape=(left.shape[0],), dtype=left.dtype)
    return Arguments((added, left, right), _factors(draft, left.dtype))


def _baddbmm(draft: Draft) -> Arguments:
    left, right = _bmm(draft).args
    added = draft.tensor(shape=(left.shape[0], left.shape[1], right.shape[2]), dtype=left.dtype)
    return Arguments((added, left, right), _factors(draft, left.dtype))


def _kron(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1, 2))
    return Arguments((left, draft.tensor(ranks=(1, 2), dtype=left.dtype)))


def _tensordot(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1, 2, 3))
    shared = draft.choices.integer(1, min(2, left.dim))
    shape = (*left.shape[-shared:], *(_size(draft, left) for _ in range(draft.choices.integer(0, 1))))
    return Arguments((left, draft.tensor(shape=shape, dtype=left.dtype), shared))


EQUATIONS = (
    "ij,jk->ik",
    "ij,kj->ik",
    "bij,bjk->bik",
    "ij,ij->",
    "ij,ij->i",
    "i,j->ij",
    "bij,jk->bki",
    "ij,j->i",
    "ijk,kl->ijl",
)


def _einsum(draft: Draft) -> Arguments:
    equation = draft.choices.pick(EQUATIONS)
    first, second = equation.split("->")[0].split(",")
    left = draft.tensor(ranks=(len(first),))
    sizes = dict(zip(first, left.shape, strict=True))
    shape = [sizes.get(letter) or sizes.setdefault(letter, _size(draft, left)) for letter in second]
    return Arguments((equation, left, draft.tensor(shape=shape, dtype=left.dtype)))


def _linear(draft: Draft) -> Arguments:
    operand = _factor(draft, (1, 2, 3))
    out = _size(draft, operand)
    weight = draft.tensor(shape=(out, operand.shape[-1]), dtype=operand.dtype)
    bias = (draft.tensor(shape=(out,), dtype=operand.dtype),) if draft.choices.chance(60) else ()
    return Arguments((operand, weight, *bias))


def _bilinear_form(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1, 2, 3))
    return Arguments((left, draft.tensor(shape=left.shape, dtype=left.dtype)), {"dim": draft.axis(left)})


def _cross(draft: Draft) -> Arguments:
    left = draft.tensor(shape=draft.choices.pick(((3,), (2, 3), (1, 2, 3))))
    return Arguments((left, draft.tensor(shape=left.shape, dtype=left.dtype)), {"dim": -1})


def _conv(spatial: int) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        choices = draft.choices
        groups = choices.weighted(((1, 3), (2, 1)))
        large = choices.chance(10)
        inner, outer = (groups * (large_size(choices) // 2 if large else choices.integer(1, 2)) for _ in range(2))
        size = [choices.integer(3, 6) * (1 + large) for _ in range(spatial)]
        operand = draft.tensor(shape=[choices.integer(1, 2), inner, *size])
        kernel = [choices.integer(1, 3) for _ in range(spatial)]
        weight = draft.tensor(shape=[outer, inner // groups, *kernel], dtype=operand.dtype)
        bias = draft.tensor(shape=(outer,), dtype=operand.dtype) if choices.chance(50) else None
        kwargs: dict[str, Any] = {"stride": choices.integer(1, 2), "padding": choices.integer(0, 2)}
        kwargs["dilation"] = choices.weighted(((1, 3), (2, 1)))
        return Arguments((operand, weight, bias), {**kwargs, "groups": groups})

    return draw


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("mm", _mm),
    ("bmm", _bmm),
    ("matmul", _matmul),
    ("mv", _mv),
    ("dot", _vectors),
    ("inner", _vectors),
    ("vdot", _vectors),
    ("outer", _outer),
    ("addmm", _addmm),
    ("addmv", _addmv),
    ("baddbmm", _baddbmm),
    ("kron", _kron),
    ("tensordot", _tensordot),
    ("einsum", _einsum),
    ("nn.functional.linear", _linear),
    ("linalg.vecdot", _bilinear_form),
    ("linalg.cross", _cross),
    ("nn.functional.conv1d", _conv(1)),
    ("nn.functional.conv2d", _conv(2)),
)
