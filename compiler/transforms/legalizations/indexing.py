"""Gather as rows of a matrix; scatter by comparing every place with every update."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import product
from torchstone.compiler.transforms.legalizations.ordering import MOST_PAIRS, identity
from torchstone.compiler.transforms.rules import Declined, Expander, legalizes

_REDUCE = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def is_row_gather(op: Operation) -> bool:
    """Say whether a gather picks rows of a matrix of known height, the one form ``gather`` below reduces to."""
    x, *places = op.values
    known = x.rank == 2 and isinstance(x.shape[0], int) and x.shape[0] > 0
    return known and places[0].rank == 1 and op.attributes["dims"] == (0,)


@legalizes("flat.gather")
def gather(b: Expander, x: Value, *places: Value, dims: tuple[int, ...]) -> Value:
    """As rows of a matrix: the dims that are indexed are one, and so are the others."""
    if 0 in b.type.shape:
        return b.full(0, b.type.dims, x.dtype)
    if is_row_gather(b.op):
        if not x.dtype.is_bool:
            raise Declined
        return b.cast(b.gather(b.cast(x, dt.int8), *places, dims=dims), dt.boolean)
    if not all(isinstance(x.shape[d], int) for d in dims):
        raise Declined
    inside = [
        b.max(b.min(place, b.full_like(place, x.shape[d] - 1)), b.full_like(place, 0))
        for place, d in zip(places, dims, strict=True)
    ]
    rows = b.gather(_matrix(b, x, dims), _row(b, x, inside, dims), dims=(0,))
    return b.reshape(rows, b.type.dims)


def _matrix(b: Expander, x: Value, dims: tuple[int, ...]) -> Value:
    """x with a row for each place along ``dims``."""
    rest = tuple(d for d in range(x.rank) if d not in dims)
    shape = tuple(product([x.shape[d] for d in side]) for side in (dims, rest))
    return b.reshape(b.transpose(x, (*dims, *rest)), shape)


def _row(b: Expander, x: Value, places: Sequence[Value], dims: tuple[int, ...]) -> Value:
    """The numbers of the rows, one dim of them, that indices in range stand for."""
    row = places[0]
    for place, d in zip(places[1:], dims[1:], strict=True):
        row = b.add(b.mul(row, b.full_like(row, x.shape[d])), place)
    return b.reshape(row, (product(row.shape),))


@legalizes("flat.scatter")
def scatter(b: Expander, x: Value, updates: Value, *places: Value, dims: tuple[int, ...], kind: str) -> Value:
    """Each row of x is combined with all updates that are for it, or is the last of them."""
    if not all(v.tensor.is_static for v in (x, updates)):
        raise Declined
    if 0 in x.shape or 0 in updates.shape:
        return x
    matrix = _matrix(b, x, dims)
    (height, width), count = matrix.shape, product(places[0].shape)
    every = (height, count, width)
    pairs = product(every)
    if not isinstance(pairs, int) or pairs > MOST_PAIRS:
        raise b.unsupported(f"{pairs} pairs of elements and updates, more than {MOST_PAIRS}")
    new = b.reshape(updates, (count, width))
    hit = b.eq(
        b.broadcast(_reached(b, x, places, dims), (height, count), (1,)),
        b.broadcast(b.iota(size=height, dtype=dt.int64), (height, count), (0,)),
    )
    if kind == "set":
        turn = b.broadcast(b.iota(size=count, dtype=dt.int64), (height, count), (1,))
        last = b.reduce(b.select(hit, turn, b.full_like(turn, -1)), "max", (1,))
        some = b.broadcast(b.ge(last, b.full_like(last, 0)), (height, width), (0,))
        out = b.select(some, b.gather(new, last, dims=(0,)), matrix)
    else:
        nothing = b.full(identity(_REDUCE[kind], x.dtype), every, x.dtype)
        terms = b.select(b.broadcast(hit, every, (0, 1)), b.broadcast(new, every, (1, 2)), nothing)
        (out,) = b.emit(kind, matrix, b.reduce(terms, _REDUCE[kind], (1,)))
        if kind == "add" and x.dtype.is_float:
            # The sum of nothing is +0, which would make a +0 of the -0 that no update is for.
            some = b.broadcast(b.reduce(hit, "or", (1,)), (height, width), (0,))
            out = b.select(some, out, matrix)
    order = (*dims, *(d for d in range(x.rank) if d not in dims))
    out = b.reshape(out, tuple(x.shape[d] for d in order))
    return b.transpose(out, tuple(order.index(d) for d in range(x.rank)))


def _reached(b: Expander, x: Value, places: Sequence[Value], dims: tuple[int, ...]) -> Value:
    """The number of the row each update is for, -1 for one out of range."""
    inside = None
    for place, d in zip(places, dims, strict=True):
        fits = b.and_(b.ge(place, b.full_like(place, 0)), b.lt(place, b.full_like(place, x.shape[d])))
        inside = fits if inside is None else b.and_(inside, fits)
    assert inside is not None
    row = _row(b, x, places, dims)
    return b.select(b.reshape(inside, row.shape), row, b.full_like(row, -1))
