"""Sizes that values decide: the true elements of a mask. They are counted, and ``flat.bind`` makes the count a size."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, convert_number, tensor
from torchstone.compiler.transforms.expansions.core.reduction import broadcast_shape
from torchstone.compiler.transforms.rules import Expander, expands


def _flat(b: Expander, x: Value) -> Value:
    return b.reshape(x, (product(x.shape),))


class Hits:
    """The true elements of a mask, in row-major order."""

    def __init__(self, b: Expander, mask: Value) -> None:
        self.b = b
        self.shape = mask.shape
        hits = _flat(b, b.cast(mask, dt.boolean))
        ones = b.cast(hits, dt.int64)
        self.count = b.reduce(ones, "sum", (0,))
        number = b.scan(ones, kind="sum", dim=0)
        # Where each goes; out of range, which a scatter drops, where the mask does not hold.
        self.places = b.select(hits, b.sub(number, const(b, number, 1)), const(b, number, -1))

    def pick(self, x: Value, into: Value) -> Value:
        """Put the elements of ``x``, shaped as the mask, where it holds, one after the other into a 1-d value."""
        return self.b.emit("scatter", into, _flat(self.b, x), self.places, dims=(0,), kind="set")[0]

    def coordinates(self, into: Value) -> list[Value]:
        """For each dim of the mask, where its true elements are along it, put into a 1-d int64 value."""
        out = []
        for dim, size in enumerate(self.shape):
            along = self.b.broadcast(self.b.iota(size=size, dtype=dt.int64), self.shape, (dim,))
            out.append(self.pick(along, into))
        return out


def bound_hits(b: Expander, mask: Value, size: Dim) -> Hits:
    """The true elements of a mask, of which there are ``size``."""
    hits = Hits(b, mask)
    b.emit("bind", hits.count, size=size)
    return hits


def mask_indices(b: Expander, mask: Value, size: Dim) -> Sequence[Value]:
    """The index tensors that a mask stands for, one for each of its dims, of ``size`` elements."""
    return bound_hits(b, mask, size).coordinates(b.full(0, (size,), dt.int64))


def _columns(b: Expander, coordinates: Sequence[Value]) -> Value:
    size = b.type.dims[0]
    if not coordinates:
        return b.full(0, b.type.dims, dt.int64)
    return b.emit("concat", *(b.reshape(c, (size, 1)) for c in coordinates), dim=1)[0]


@expands("aten.nonzero.default")
def nonzero(b: Expander, x: Value) -> Value:
    return _columns(b, mask_indices(b, x, b.type.dims[0]))


@expands("aten.nonzero_static.default")
def nonzero_static(b: Expander, x: Value, size: int, fill_value: int = -1) -> Value:
    """As many as asked for: the rest is left out, or filled up."""
    return _columns(b, Hits(b, x).coordinates(b.full(fill_value, (size,), dt.int64)))


@expands("aten.masked_select.default")
def masked_select(b: Expander, x: Value, mask: Value) -> Value:
    shape, (size,) = broadcast_shape(x, mask), b.type.dims
    hits = bound_hits(b, b.broadcast(mask, shape), size)
    return hits.pick(b.broadcast(x, shape), b.full(convert_number(0, x.dtype), (size,), x.dtype))


@expands("aten.repeat_interleave.Tensor")
def repeat_interleave(b: Expander, repeats: Value, output_size: int | None = None) -> Value:
    """Index i as often as repeats[i] says: how many runs begin up to each place, less one."""
    (size,), dtype = b.type.dims, b.type.dtype
    repeats = b.cast(repeats, dt.int64)
    negative = b.reduce(b.ge(repeats, const(b, repeats, 0)), "and", (0,))
    b.emit("check", negative, message="repeats can not be negative")
    ends = b.scan(repeats, kind="sum", dim=0)
    b.emit("bind", b.reduce(repeats, "sum", (0,)), size=size)
    starts, ones, none = b.sub(ends, repeats), const(b, repeats, 1), b.full(0, (size,), dt.int64)
    begun = b.scan(b.emit("scatter", none, ones, starts, dims=(0,), kind="add")[0], kind="sum", dim=0)
    return b.cast(b.sub(begun, const(b, begun, 1)), dtype)


@expands("aten.bincount.default")
def bincount(b: Expander, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """As long as the largest element needs, and at least ``minlength``."""
    (size,), dtype = b.type.dims, b.type.dtype
    x = b.cast(x, dt.int64)
    if x.shape[0] == 0:
        b.emit("bind", tensor(b, minlength, dt.int64), size=size)
        return b.full(convert_number(0, dtype), (size,), dtype)
    positive = b.reduce(b.ge(x, const(b, x, 0)), "and", (0,))
    b.emit("check", positive, message="bincount only supports 1-d non-negative integral inputs.")
    length = b.add(b.reduce(x, "max", (0,)), b.scalar(1, dt.int64))
    b.emit("bind", b.max(length, tensor(b, minlength, dt.int64)), size=size)
    updates = b.full(1, x.shape, dtype) if weights is None else b.fit(b.cast(weights, dtype), x.shape)
    into = b.full(convert_number(0, dtype), (size,), dtype)
    return b.emit("scatter", into, updates, x, dims=(0,), kind="add")[0]
