"""Distances between rows, and the products of geometry."""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, expand_dims, is_nan, wrap_dim
from torchstone.compiler.transforms.expansions.core.join import concat
from torchstone.compiler.transforms.expansions.core.reduction import norm
from torchstone.compiler.transforms.expansions.nn.blending import gathered
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# Every pair of rows is two numbers in the program.
_MOST_ROWS = 256


@expands("aten._cdist_forward.default")
def cdist(b: Expander, x: Value, y: Value, p: float, compute_mode: int | None = None) -> Value:
    """The p-norm of x[i] - y[j] for every i and j."""
    *batch, rows, columns = b.type.dims
    shape = (*batch, rows, columns, x.shape[-1])
    lead = len(batch)
    left = b.broadcast(b.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), shape)
    y = b.cast(y, x.dtype)  # eager takes two dtypes where it has nothing to compute
    right = b.broadcast(b.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:])), shape)
    gap = b.sub(left, right)
    if p == math.inf:  # eager compares with what it has so far, and NaN is greater than nothing
        gap = b.select(is_nan(b, gap), const(b, gap, 0), gap)
    return _distance(b, gap, p, lead + 2)


def _distance(b: Expander, gap: Value, p: float, dim: int) -> Value:
    if gap.shape[dim] == 0:
        return const(b, b.reduce(gap, "sum", (dim,)), 0)
    if p == 0:  # the count of numbers that differ, but NaN where one is NaN
        return b.reduce(b.min(b.ceil(b.abs(gap)), const(b, gap, 1)), "sum", (dim,))
    return norm(b, gap, p, (dim,), of_one=False)


@expands("aten._pdist_forward.default")
def pdist(b: Expander, x: Value, p: float = 2.0) -> Value:
    """The p-norm of x[i] - x[j] for i < j, one row of j after the other."""
    rows = x.shape[0]
    if not isinstance(rows, int):
        raise b.unsupported("a run-time number of rows")
    if rows < 2:
        return b.full(0.0, b.type.dims, b.type.dtype)
    if rows > _MOST_ROWS:
        raise b.unsupported(f"{rows} rows")
    pairs = [(i, j) for i in range(rows) for j in range(i + 1, rows)]
    left, right = (b.reshape(gathered(b, x, 0, [side]), (len(pairs), x.shape[1])) for side in zip(*pairs, strict=True))
    return _distance(b, b.sub(left, right), p, 1)


@expands("aten._cdist_backward.default")
def cdist_backward(b: Expander, grad: Value, x: Value, y: Value, p: float, distances: Value) -> Value:
    """The gradient of x: the sum over j of the slopes of the distances from x[i] to y[j]."""
    *batch, rows, width = b.type.dims
    shape = (*batch, rows, y.shape[-2], width)
    if 0 in (*shape, *x.shape, *y.shape):  # PyTorch gives a gradient of the shape of x, batch dims or none
        return b.full(0.0, b.type.dims, b.type.dtype)
    lead = len(batch)
    left = b.broadcast(b.reshape(x, (*x.shape[:-1], 1, width)), shape)
    right = b.broadcast(b.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:])), shape)
    grad, distances = (b.broadcast(v, shape, tuple(range(lead + 2))) for v in (grad, distances))
    return b.reduce(_slope(b, b.sub(left, right), distances, grad, p), "sum", (lead + 1,))


@expands("aten._pdist_backward.default")
def pdist_backward(b: Expander, grad: Value, x: Value, p: float, distances: Value) -> Value:
    """As the distances between all rows, each pair of rows having one entry."""
    rows, width = x.shape
    if not isinstance(rows, int):
        raise b.unsupported("a run-time number of rows")
    if rows < 2 or width == 0:
        return b.full(0.0, b.type.dims, b.type.dtype)
    if rows > _MOST_ROWS:
        raise b.unsupported(f"{rows} rows")
    # Row i's pairs, with i + 1, i + 2, …, begin at entry(i, i + 1); a row is paired with itself at any entry.
    entry = [[_entry(min(i, j), max(i, j), rows) if i != j else 0 for j in range(rows)] for i in range(rows)]
    grad, distances = (gathered(b, v, 0, entry) for v in (grad, distances))
    shape = (rows, rows, width)
    left, right = b.broadcast(x, shape, (0, 2)), b.broadcast(x, shape, (1, 2))
    grad, distances = (b.broadcast(v, shape, (0, 1)) for v in (grad, distances))
    slope = _slope(b, b.sub(left, right), distances, grad, p)
    row = b.iota(size=rows, dtype=dt.int64)
    same = b.eq(b.broadcast(row, shape, (0,)), b.broadcast(row, shape, (1,)))
    return b.reduce(b.select(same, const(b, slope, 0), slope), "sum", (1,))


def _entry(i: int, j: int, rows: int) -> int:
    return i * rows - i * (i + 1) // 2 + j - i - 1


def _slope(b: Expander, gap: Value, distance: Value, grad: Value, p: float) -> Value:
    """The gradient of a gap, one element of a vector, by the p-norm of the vector; 0 at distance 0, as in eager."""
    if p == 0:
        return const(b, gap, 0)
    if p == 1:
        return b.mul(grad, _direction(b, gap))
    zero = const(b, gap, 0)
    if p == math.inf:
        # As in eager: NaN where the distance is not finite, and neither is the gap.
        apart = b.ceil(b.abs(b.sub(b.abs(gap), distance)))
        return b.mul(b.mul(grad, _direction(b, gap)), b.sub(const(b, gap, 1), b.min(const(b, gap, 1), apart)))
    flat = b.eq(distance, zero)
    if p == 2:
        return b.select(flat, zero, b.div(b.mul(grad, gap), distance))
    scale = b.pow(distance, const(b, distance, p - 1))
    if p < 2:
        power = b.mul(b.sign(gap), b.pow(b.abs(gap), const(b, gap, p - 1)))
        flat = b.or_(flat, b.eq(gap, zero)) if p < 1 else flat
    else:
        power = b.mul(gap, b.pow(b.abs(gap), const(b, gap, p - 2)))
    return b.select(flat, zero, b.div(b.mul(power, grad), scale))


def _direction(b: Expander, gap: Value) -> Value:
    """The sign of a gap; that of NaN is NaN, in eager's kernels of distances."""
    return b.select(is_nan(b, gap), gap, b.sign(gap))


@expands("aten.linalg_cross.default")
def cross(b: Expander, x: Value, y: Value, dim: int = -1) -> Value:
    """x1 y2 - x2 y1 and so on, along a dim of size 3."""
    x, y = (b.broadcast(v, b.type.dims) for v in (x, y))
    dim = wrap_dim(dim, x.rank)

    def part(v: Value, i: int) -> Value:
        return b.slice(v, dim, i % 3, i % 3 + 1)

    parts = [
        b.sub(b.mul(part(x, i + 1), part(y, i + 2)), b.mul(part(x, i + 2), part(y, i + 1))) for i in range(3)
    ]  # fmt: skip
    return concat(b, parts, dim)


@expands("aten.renorm.default")
def renorm(b: Expander, x: Value, p: float, dim: int, maxnorm: float) -> Value:
    """Each slice along dim whose p-norm is above maxnorm, scaled down to it."""
    dim = wrap_dim(dim, x.rank)
    values = b.cast(x, opmath(x.dtype))
    dims = tuple(d for d in range(x.rank) if d != dim)
    size = norm(b, values, float(p), dims)
    limit = const(b, size, maxnorm)
    factor = b.div(limit, b.add(size, const(b, size, 1e-7)))
    factor = b.select(b.gt(size, limit), factor, const(b, size, 1))
    factor = b.cast(expand_dims(b, factor, x.shape, dims), values.dtype)
    return b.cast(b.mul(values, factor), x.dtype)
