"""Distances between rows, and the products of geometry."""

from __future__ import annotations

from torchstone.compiler.contract.expansions.common import const, expand_dims, wrap_dim
from torchstone.compiler.contract.expansions.join import concat
from torchstone.compiler.contract.expansions.reduction import norm
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value


@expands("aten._cdist_forward.default")
def cdist(b: Expander, x: Value, y: Value, p: float, compute_mode: int | None = None) -> Value:
    """The p-norm of x[i] - y[j] for every i and j."""
    *batch, rows, columns = b.type.dims
    shape = (*batch, rows, columns, x.shape[-1])
    lead = len(batch)
    left = b.broadcast(b.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), shape)
    right = b.broadcast(b.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:])), shape)
    return _distance(b, b.sub(left, right), p, lead + 2)


def _distance(b: Expander, gap: Value, p: float, dim: int) -> Value:
    if gap.shape[dim] == 0:
        return const(b, b.reduce(gap, "sum", (dim,)), 0)
    return norm(b, gap, p, (dim,))


@expands("aten._pdist_forward.default")
def pdist(b: Expander, x: Value, p: float = 2.0) -> Value:
    """The p-norm of x[i] - x[j] for i < j, one row of j after the other."""
    rows = x.shape[0]
    if not isinstance(rows, int):
        raise b.unsupported("a run-time number of rows")
    if rows < 2 or rows > 256:
        if rows < 2:
            return b.full(0.0, b.type.dims, b.type.dtype)
        raise b.unsupported(f"{rows} rows")
    parts: list[Value] = []
    for i in range(rows - 1):
        rest = b.slice(x, 0, i + 1, rows)
        one = b.broadcast(b.slice(x, 0, i, i + 1), rest.shape)
        parts.append(_distance(b, b.sub(one, rest), p, 1))
    return concat(b, parts, 0)


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
