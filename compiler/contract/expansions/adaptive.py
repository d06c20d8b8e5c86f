"""Adaptive pooling: window i of n over a size goes from floor(i * size / n) to ceil((i + 1) * size / n)."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.contract.expansions.blending import blend, gathered, transposed
from torchstone.compiler.contract.expansions.pooling import largest, numbered, zeros
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim

Bounds = list[tuple[int, int]]


def _bounds(b: Expander, size: Dim, count: Dim) -> Bounds:
    if not isinstance(size, int) or not isinstance(count, int):
        raise b.unsupported("windows over a run-time size")
    return [(i * size // count, -((-(i + 1) * size) // count)) for i in range(count)]


def _rows(bounds: Bounds) -> list[list[tuple[int, float]]]:
    return [[(i, 1.0) for i in range(low, high)] for low, high in bounds]


def _length(bounds: Bounds) -> int | None:
    """The length of the windows if they are equal, side by side."""
    length = bounds[0][1]
    return length if bounds == [(i * length, (i + 1) * length) for i in range(len(bounds))] else None


def _divided(b: Expander, x: Value, dim: int, bounds: Bounds) -> Value:
    """Divide by the lengths of the windows along ``dim``."""
    lengths = tuple(float(high - low) for low, high in bounds)
    vector = b.emit("constant", value=lengths, shape=(len(bounds),), dtype=x.dtype)[0]
    return b.div(x, b.broadcast(vector, x.shape, (dim,)))


@expands("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(b: Expander, x: Value, output_size: Sequence[int]) -> tuple[Value, ...]:
    """The mean of each window: sums along one dim after the other, divided by one length after the other."""
    if 0 in b.type.dims:
        return zeros(b)
    space = int(b.op.name[len("aten._adaptive_avg_pool")])
    out = b.cast(x, opmath(x.dtype))
    bounds = {d: _bounds(b, x.shape[d], b.type.dims[d]) for d in range(x.rank - space, x.rank)}
    for dim, along in bounds.items():
        length = _length(along)
        if length is None:
            out = blend(b, out, dim, _rows(along))
        else:
            split = (*out.shape[:dim], len(along), length, *out.shape[dim + 1 :])
            out = b.reduce(b.reshape(out, split), "sum", (dim + 1,))
    for dim, along in bounds.items():
        out = _divided(b, out, dim, along)
    return (b.cast(out, b.type.dtype),)


@expands("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(b: Expander, grad: Value, x: Value) -> tuple[Value, ...]:
    """The gradient of a window over its length goes to each of its elements."""
    if 0 in x.shape or 0 in grad.shape:
        return zeros(b)
    space = int(b.op.name[len("aten._adaptive_avg_pool")])
    out = b.cast(grad, opmath(x.dtype))
    bounds = {d: _bounds(b, x.shape[d], grad.shape[d]) for d in range(x.rank - space, x.rank)}
    for dim, along in bounds.items():
        out = _divided(b, out, dim, along)
    for dim, along in bounds.items():
        out = blend(b, out, dim, transposed(_rows(along), along[-1][1]))
    return (b.cast(out, b.type.dtype),)


@expands("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(b: Expander, x: Value, output_size: Sequence[int]) -> tuple[Value, ...]:
    """The largest element of each window and its place in the flattened plane.

    Windows that differ are all as long as the longest; what is past their end is their last element again.
    """
    if 0 in b.type.dims:
        return zeros(b)
    space = int(b.op.name[len("aten.adaptive_max_pool")])
    first = x.rank - space
    value, place = x, numbered(b, x.shape[first:])
    for axis in range(space):
        bounds = _bounds(b, x.shape[first + axis], b.type.dims[first + axis])
        longest = max(high - low for low, high in bounds)
        rows = [[min(low + k, high - 1) for k in range(longest)] for low, high in bounds]
        values = _windows(b, value, first + axis, bounds, rows)
        value, place = largest(
            b, values, _windows(b, place, place.rank - space + axis, bounds, rows), (first + axis + 1,)
        )
    return value, place


def _windows(b: Expander, x: Value, dim: int, bounds: Bounds, rows: list[list[int]]) -> Value:
    """[windows, elements] at ``dim``."""
    length = _length(bounds)
    if length is None:
        return gathered(b, x, dim, rows)
    return b.reshape(x, (*x.shape[:dim], len(rows), length, *x.shape[dim + 1 :]))
