"""Reductions and contractions in the restricted forms that targets take."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import product
from torchstone.compiler.transforms.legalizations.common import legalization
from torchstone.compiler.transforms.rules import Declined, Expander


@legalization("reduce")
def reduce(b: Expander, x: Value, *, kind: str, dims: tuple[int, ...]) -> Value:
    """One dim at a time, the last first; a product the target lacks, as a tree of multiplications."""
    if len(dims) > 1:
        for dim in reversed(dims):
            x = b.reduce(x, kind, (dim,))
        return x
    if not dims:
        return x
    if kind in ("and", "or") or kind == "sum" or x.dtype.is_complex:
        raise Declined
    return _tree(b, x, {"prod": "mul"}.get(kind, kind), dims[0])


def _tree(b: Expander, x: Value, primitive: str, dim: int) -> Value:
    """Combine the first half with the second until one element is left along ``dim``."""
    size = x.shape[dim]
    if not isinstance(size, int):
        raise Declined
    if size == 0:
        return b.full(1, b.type.dims, x.dtype)  # a product: there is no maximum of nothing
    while size > 1:
        half = size // 2
        (joined,) = b.emit(primitive, b.slice(x, dim, 0, half), b.slice(x, dim, half, 2 * half))
        x = b.concat(joined, b.slice(x, dim, 2 * half, size), dim=dim) if size % 2 else joined
        size -= half
    return b.reshape(x, (*x.shape[:dim], *x.shape[dim + 1 :]))


@legalization("arg_reduce")
def arg_reduce(b: Expander, x: Value, *, kind: str, dim: int) -> Value:
    """The smallest index at which x is the extremum or NaN (the extremum is NaN when any element is)."""
    extremum = b.reduce(x, "max" if kind == "argmax" else "min", (dim,))
    others = tuple(d for d in range(x.rank) if d != dim)
    hit = b.eq(x, b.broadcast(extremum, x.shape, others))
    if x.dtype.is_float:
        hit = b.or_(hit, b.ne(x, x))
    size = x.shape[dim]
    # int32 where it holds every index: more targets reduce it.
    dtype = dt.int32 if isinstance(size, int) and size < 2**31 else dt.int64
    index = b.broadcast(b.iota(size=size, dtype=dtype), x.shape, (dim,))
    none = b.full(size, x.shape, dtype) if isinstance(size, int) else None
    if none is None:
        raise Declined
    return b.cast(b.reduce(b.select(hit, index, none), "min", (dim,)), dt.int64)


def is_batched_matmul(a: Value, b: Value, **dims: tuple[int, ...]) -> bool:
    """Say whether a contraction is [B, M, K] x [B, K, N] -> [B, M, N], the one form ``contract`` below reduces to."""
    form = {"a_batch": (0,), "b_batch": (0,), "a_sum": (2,), "b_sum": (1,)}
    return a.rank == b.rank == 3 and dims == form


@legalization("contract")
def contract(
    b: Expander, x: Value, y: Value, *,
    a_batch: tuple[int, ...], b_batch: tuple[int, ...], a_sum: tuple[int, ...], b_sum: tuple[int, ...],
) -> Value:  # fmt: skip
    """As a batched matrix product: dims gathered into batch, rows, summed and columns, each group one dim.

    A product of integers a target lacks is the sum of [B, M, K, 1] * [B, 1, K, N] over K.
    """
    if is_batched_matmul(x, y, a_batch=a_batch, b_batch=b_batch, a_sum=a_sum, b_sum=b_sum):
        if not x.dtype.is_int:
            raise Declined
        shape = (*x.shape, y.shape[2])
        terms = b.mul(b.broadcast(x, shape, (0, 1, 2)), b.broadcast(y, shape, (0, 2, 3)))
        return b.reduce(terms, "sum", (2,))
    rows = tuple(d for d in range(x.rank) if d not in (*a_batch, *a_sum))
    columns = tuple(d for d in range(y.rank) if d not in (*b_batch, *b_sum))
    batch, summed = (product([x.shape[d] for d in dims]) for dims in (a_batch, a_sum))
    height, width = product([x.shape[d] for d in rows]), product([y.shape[d] for d in columns])
    left = b.reshape(b.transpose(x, (*a_batch, *rows, *a_sum)), (batch, height, summed))
    right = b.reshape(b.transpose(y, (*b_batch, *b_sum, *columns)), (batch, summed, width))
    out = b.contract(left, right, a_batch=(0,), b_batch=(0,), a_sum=(2,), b_sum=(1,))
    return b.reshape(out, b.type.dims)
