"""Adaptive pooling: window i of n over a size goes from floor(i * size / n) to ceil((i + 1) * size / n)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, tensor
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.expansions.nn.blending import blend, gathered, taken, transposed
from torchstone.compiler.transforms.expansions.nn.pooling import largest, numbered, zero_results
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


def _windows(b: Expander, size: Dim, count: Dim) -> _Known | _Computed:
    if isinstance(size, int) and isinstance(count, int):
        return _Known(b, [(i * size // count, -((-(i + 1) * size) // count)) for i in range(count)])
    return _Computed(b, size, count)


@dataclass
class _Known:
    """Windows along a dim whose bounds are known when the program is compiled."""

    b: Expander
    bounds: list[tuple[int, int]]

    @property
    def _length(self) -> int | None:
        """The length of the windows if they are equal, side by side."""
        length = self.bounds[0][1]
        equal = self.bounds == [(i * length, (i + 1) * length) for i in range(len(self.bounds))]
        return length if equal else None

    @property
    def _rows(self) -> list[list[tuple[int, float]]]:
        return [[(i, 1.0) for i in range(low, high)] for low, high in self.bounds]

    def lengths(self, dtype: DType) -> Value:
        values = tuple(float(high - low) for low, high in self.bounds)
        return self.b.emit("constant", value=values, shape=(len(values),), dtype=dtype)[0]

    def summed(self, x: Value, dim: int) -> Value:
        if self._length is None:
            return blend(self.b, x, dim, self._rows)
        return self.b.reduce(self.elements(x, dim), "sum", (dim + 1,))

    def spread(self, x: Value, dim: int) -> Value:
        """What each window has is added to each of its elements."""
        return blend(self.b, x, dim, transposed(self._rows, self.bounds[-1][1]))

    def elements(self, x: Value, dim: int) -> Value:
        """[windows, elements] at ``dim``: all as long as the longest; past the end is the last element again."""
        if self._length is not None:
            return self.b.reshape(x, (*x.shape[:dim], len(self.bounds), self._length, *x.shape[dim + 1 :]))
        longest = max(high - low for low, high in self.bounds)
        return gathered(self.b, x, dim, [[min(low + k, high - 1) for k in range(longest)] for low, high in self.bounds])


class _Computed:
    """The same, over a size that is known at run time only."""

    def __init__(self, b: Expander, size: Dim, count: Dim) -> None:
        self.b, self.size = b, size
        index = b.iota(size=count, dtype=dt.int64)
        sizes, counts = (b.broadcast(tensor(b, s, dt.int64), index.shape, ()) for s in (size, count))
        self.low = b.div(b.mul(index, sizes), counts)
        one = const(b, index, 1)
        reached = b.mul(b.add(index, one), sizes)
        self.high = b.div(b.add(reached, b.sub(counts, one)), counts)
        # A window covers no more than two elements in part.
        shape = (count, (size + count - 1) // count + 1)
        step = b.broadcast(b.iota(size=shape[1], dtype=dt.int64), shape, (1,))
        self.places = b.add(b.broadcast(self.low, shape, (0,)), step)
        self.last = b.broadcast(b.sub(self.high, one), shape, (0,))
        self.inside = b.le(self.places, self.last)

    def lengths(self, dtype: DType) -> Value:
        return self.b.cast(self.b.sub(self.high, self.low), dtype)

    def summed(self, x: Value, dim: int) -> Value:
        b, out = self.b, self.elements(x, dim)
        inside = b.broadcast(self.inside, out.shape, (dim, dim + 1))
        return b.reduce(b.select(inside, out, const(b, out, 0)), "sum", (dim + 1,))

    def spread(self, x: Value, dim: int) -> Value:
        b = self.b
        order = (dim, *(d for d in range(x.rank) if d != dim))
        rows = b.transpose(x, order)
        updates = b.broadcast(rows, (*self.places.shape, *rows.shape[1:]), (0, *range(2, rows.rank + 1)))
        into = b.full(0.0, (self.size, *rows.shape[1:]), x.dtype)
        # An update out of range is dropped.
        index = b.select(self.inside, self.places, const(b, self.places, -1))
        out = write(b, into, updates, [index], [0], "add")
        return b.transpose(out, (*range(1, dim + 1), 0, *range(dim + 1, x.rank)))

    def elements(self, x: Value, dim: int) -> Value:
        return taken(self.b, x, dim, self.b.min(self.places, self.last))


def _divided(b: Expander, x: Value, dim: int, windows: _Known | _Computed) -> Value:
    """Divide by the lengths of the windows along ``dim``."""
    return b.div(x, b.broadcast(windows.lengths(x.dtype), x.shape, (dim,)))


@expands("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(b: Expander, x: Value, output_size: Sequence[int]) -> tuple[Value, ...]:
    """The mean of each window: sums along one dim after the other, divided by one length after the other."""
    if 0 in b.type.dims:
        return zero_results(b)
    space = int(b.op.name[len("aten._adaptive_avg_pool")])
    out = b.cast(x, opmath(x.dtype))
    windows = {d: _windows(b, x.shape[d], b.type.dims[d]) for d in range(x.rank - space, x.rank)}
    for dim, along in windows.items():
        out = along.summed(out, dim)
    for dim, along in windows.items():
        out = _divided(b, out, dim, along)
    return (b.cast(out, b.type.dtype),)


@expands("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(b: Expander, grad: Value, x: Value) -> tuple[Value, ...]:
    """The gradient of a window over its length goes to each of its elements."""
    if 0 in x.shape or 0 in grad.shape:
        return zero_results(b)
    space = int(b.op.name[len("aten._adaptive_avg_pool")])
    out = b.cast(grad, opmath(x.dtype))
    windows = {d: _windows(b, x.shape[d], grad.shape[d]) for d in range(x.rank - space, x.rank)}
    for dim, along in windows.items():
        out = _divided(b, out, dim, along)
    for dim, along in windows.items():
        out = along.spread(out, dim)
    return (b.cast(out, b.type.dtype),)


@expands("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(b: Expander, x: Value, output_size: Sequence[int]) -> tuple[Value, ...]:
    """The largest element of each window and its place in the flattened plane."""
    if 0 in b.type.dims:
        return zero_results(b)
    space = int(b.op.name[len("aten.adaptive_max_pool")])
    first = x.rank - space
    value, place = x, numbered(b, x.shape[first:])
    for axis in range(space):
        windows = _windows(b, x.shape[first + axis], b.type.dims[first + axis])
        values, places = (windows.elements(v, v.rank - space + axis) for v in (value, place))
        value, place = largest(b, values, places, (first + axis + 1,))
    return value, place
