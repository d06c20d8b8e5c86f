"""Elements along a dim chosen, or blended, by indices and weights that are known when the program is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.rules import Expander

# The indices and weights of the elements that one element is made of.
Weights: TypeAlias = Sequence[tuple[int, float]]


def gathered(b: Expander, x: Value, dim: int, rows: Sequence[Sequence[int]]) -> Value:
    """The elements along ``dim`` at the indices of rows of equal length: [rows, elements] at ``dim``."""
    values = tuple(index for row in rows for index in row)
    return taken(b, x, dim, b.emit("constant", value=values, shape=(len(rows), len(rows[0])), dtype=dt.int64)[0])


def taken(b: Expander, x: Value, dim: int, table: Value) -> Value:
    """The elements along ``dim`` at the indices of a [rows, elements] table, which take the place of the dim."""
    out = b.gather(x, table, dims=(dim,))
    return b.transpose(out, (*range(2, dim + 2), 0, 1, *range(dim + 2, x.rank + 1)))


def blend(b: Expander, x: Value, dim: int, rows: Sequence[Weights]) -> Value:
    """Along ``dim``, the weighted sum of the elements of each row; 0 for a row of none."""
    if [*map(list, rows)] == [[(i, 1.0)] for i in range(len(rows))] and len(rows) == x.shape[dim]:
        return x
    longest = max(1, *map(len, rows))
    full = [[*row, *[(0, 0.0)] * (longest - len(row))] for row in rows]
    out = gathered(b, x, dim, [[index for index, _ in row] for row in full])
    places = (dim, dim + 1)
    if any(weight != 1.0 for row in rows for _, weight in row):
        weights = tuple(weight for row in full for _, weight in row)
        matrix = b.emit("constant", value=weights, shape=(len(rows), longest), dtype=x.dtype)[0]
        out = b.mul(out, b.broadcast(matrix, out.shape, places))
    if any(len(row) < longest for row in rows):
        # What only fills a row up must not count: 0 times an infinity is NaN.
        real = tuple(k < len(row) for row in rows for k in range(longest))
        mask = b.emit("constant", value=real, shape=(len(rows), longest), dtype=dt.boolean)[0]
        out = b.select(b.broadcast(mask, out.shape, places), out, const(b, out, 0))
    if longest == 1:
        return b.reshape(out, (*x.shape[:dim], len(rows), *x.shape[dim + 1 :]))
    return b.reduce(out, "sum", (dim + 1,))


def transposed(rows: Sequence[Weights], size: int) -> list[list[tuple[int, float]]]:
    """The rows of the gradient: what each of ``size`` elements was multiplied with, and where that went."""
    out: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for to, row in enumerate(rows):
        for index, weight in row:
            out[index].append((to, weight))
    return out
