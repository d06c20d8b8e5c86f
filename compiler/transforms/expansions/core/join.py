"""Joining, repeating and padding: cat, stack, repeat, roll, constant, reflection and replication padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import convert_number, tensor, wrap_dim
from torchstone.compiler.transforms.rules import Expander, expands


def concat(b: Expander, parts: Sequence[Value], dim: int) -> Value:
    """Concatenate, leaving out parts known to be empty."""
    kept = [p for p in parts if p.shape[dim] != 0] or list(parts[:1])
    return kept[0] if len(kept) == 1 else b.emit("concat", *kept, dim=dim)[0]


@expands("aten.cat.default")
def cat(b: Expander, tensors: tuple[Value, ...], dim: int = 0) -> Value:
    """Join along dim in the promoted dtype. Tensors of shape [0] join anything, as in PyTorch."""
    dtype, rank = b.type.dtype, b.type.rank
    kept = [b.cast(t, dtype) for t in tensors if not (t.shape == (0,) and b.type.dims != (0,))]
    if not kept or rank == 0 or 0 in b.type.dims:  # nothing along any dim, as PyTorch takes of tensors of shape [0]
        return b.full(_zero(b), b.type.dims, dtype)
    return concat(b, kept, wrap_dim(dim, rank))


def _zero(b: Expander) -> Any:
    dtype = b.type.dtype
    return False if dtype.is_bool else 0 if dtype.is_int else 0.0


@expands("aten.stack.default")
def stack(b: Expander, tensors: tuple[Value, ...], dim: int = 0) -> Value:
    dim = wrap_dim(dim, b.type.rank)
    parts = [b.cast(t, b.type.dtype) for t in tensors]
    return concat(b, [b.reshape(p, (*p.shape[:dim], 1, *p.shape[dim:])) for p in parts], dim)


@expands("aten.repeat.default")
def repeat(b: Expander, x: Value, repeats: tuple[Dim, ...]) -> Value:
    """[n] -> [1, n] -> [times, n] -> [times * n] in every dim."""
    if 0 in b.type.dims:
        # Eager takes what comes to no elements, though it be a size of 0 a negative number of times.
        return b.full(convert_number(0, x.dtype), b.type.dims, x.dtype)
    shape = (*(1,) * (len(repeats) - x.rank), *x.shape)
    wide = tuple(size for pair in zip(repeats, shape, strict=True) for size in pair)
    kept = tuple(2 * d + 1 for d in range(len(shape)))
    return b.reshape(b.broadcast(b.reshape(x, shape), wide, kept), b.type.dims)


@expands("aten.roll.default")
def roll(b: Expander, x: Value, shifts: tuple[Dim, ...], dims: tuple[int, ...] = ()) -> Value:
    """The last ``shift`` elements come first; without dims, of the flattened tensor."""
    if 0 in x.shape:
        return x
    if not dims:
        flat = b.reshape(x, (_count(x),))
        return b.reshape(_roll(b, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll(b, x, shift, wrap_dim(dim, x.rank)) if x.rank else x
    return x


def _count(x: Value) -> Dim:
    return product(x.shape)


def _roll(b: Expander, x: Value, shift: Dim, dim: int) -> Value:
    size = x.shape[dim]
    shift = shift % size
    if shift == 0:
        return x
    return concat(b, [b.slice(x, dim, size - shift, size), b.slice(x, dim, 0, size - shift)], dim)


@expands("aten.rot90.default")
def rot90(b: Expander, x: Value, k: int = 1, dims: tuple[int, int] = (0, 1)) -> Value:
    i, j = (wrap_dim(d, x.rank) for d in dims)
    order = list(range(x.rank))
    order[i], order[j] = j, i
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return b.reverse(x, dims=tuple(sorted((i, j))))
    if k == 1:
        return b.transpose(b.reverse(x, dims=(j,)), tuple(order))
    return b.transpose(b.reverse(x, dims=(i,)), tuple(order))


# Padding: PyTorch lists (before, after) for the last dim first.


def _by_dim(pad: Sequence[Dim], rank: int) -> list[tuple[int, Dim, Dim]]:
    return [(rank - 1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]


@expands("aten.constant_pad_nd.default")
def constant_pad(b: Expander, x: Value, pad: tuple[Dim, ...], value: Any = 0) -> Value:
    """Negative padding cuts."""
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for dim, before, after in _by_dim(pad, x.rank):
        size = x.shape[dim]
        cut_low = -before if isinstance(before, int) and before < 0 else 0
        cut_high = -after if isinstance(after, int) and after < 0 else 0
        if cut_low or cut_high:
            # Both cuts may pass each other when the other side is padded: pad first, cut afterwards.
            grown = _pad_one(b, x, dim, 0 if cut_low else before, 0 if cut_high else after, value)
            x = b.slice(grown, dim, cut_low, grown.shape[dim] - cut_high)
            assert x.shape[dim] == size + before + after
        else:
            low[dim], high[dim] = before, after
    if any(v != 0 for v in (*low, *high)):
        x = b.emit("pad", x, tensor(b, value, x.dtype), low=tuple(low), high=tuple(high))[0]
    return x


def _pad_one(b: Expander, x: Value, dim: int, before: Dim, after: Dim, value: Any) -> Value:
    if before == 0 and after == 0:
        return x
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    low[dim], high[dim] = before, after
    return b.emit("pad", x, tensor(b, value, x.dtype), low=tuple(low), high=tuple(high))[0]


def _outside(b: Expander, x: Value, pad: Sequence[Dim], edge: Any) -> Value:
    """Put ``edge(x, dim, count, at_end)`` before and after x in each padded dim; negative padding cuts.

    What is cut may reach into the padding of the other side: pad first, cut afterwards.
    """
    for dim, before, after in _by_dim(pad, x.rank):
        front = [edge(x, dim, before, False)] if _adds(before) else []
        back = [edge(x, dim, after, True)] if _adds(after) else []
        x = concat(b, [*front, x, *back], dim)
        cut_low, cut_high = (0 if count == 0 or _adds(count) else -count for count in (before, after))
        if cut_low or cut_high:
            x = b.slice(x, dim, cut_low, x.shape[dim] - cut_high)
    return x


def _adds(count: Dim) -> bool:
    return not (isinstance(count, int) and count <= 0)


@expands("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(b: Expander, x: Value, pad: tuple[Dim, ...]) -> Value:
    """Mirrored at the border element, which is not repeated."""

    def edge(x: Value, dim: int, count: Dim, at_end: bool) -> Value:
        size = x.shape[dim]
        part = b.slice(x, dim, size - 1 - count, size - 1) if at_end else b.slice(x, dim, 1, 1 + count)
        return b.reverse(part, dims=(dim,))

    return _outside(b, x, pad, edge)


@expands("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(b: Expander, x: Value, pad: tuple[Dim, ...]) -> Value:
    """The border element, repeated."""

    def edge(x: Value, dim: int, count: Dim, at_end: bool) -> Value:
        size = x.shape[dim]
        part = b.slice(x, dim, size - 1, size) if at_end else b.slice(x, dim, 0, 1)
        return b.broadcast(part, (*x.shape[:dim], count, *x.shape[dim + 1 :]))

    return _outside(b, x, pad, edge)


@expands("aten.block_diag.default")
def block_diag(b: Expander, tensors: tuple[Value, ...]) -> Value:
    """Each matrix in its own rows and columns, zeros elsewhere; a vector is one row."""
    columns = b.type.dims[1]
    rows: list[Value] = []
    start: Dim = 0
    for t in tensors:
        x = b.cast(t, b.type.dtype)
        x = b.reshape(x, (*(1,) * (2 - x.rank), *x.shape))
        after = columns - start - x.shape[1]
        rows.append(b.emit("pad", x, b.scalar(_zero(b), x.dtype), low=(0, start), high=(0, after))[0])
        start = start + x.shape[1]
    return concat(b, rows, 0)


@expands("aten.pixel_shuffle.default")
def pixel_shuffle(b: Expander, x: Value, factor: int) -> Value:
    """[…, c r r, h, w] -> […, c, h r, w r]."""
    *lead, channels, height, width = x.shape
    n, r = len(lead), factor
    x = b.reshape(x, (*lead, channels // (r * r), r, r, height, width))
    x = b.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return b.reshape(x, b.type.dims)


@expands("aten.pixel_unshuffle.default")
def pixel_unshuffle(b: Expander, x: Value, factor: int) -> Value:
    """[…, c, h r, w r] -> […, c r r, h, w]."""
    *lead, channels, height, width = x.shape
    n, r = len(lead), factor
    x = b.reshape(x, (*lead, channels, height // r, r, width // r, r))
    x = b.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return b.reshape(x, b.type.dims)


@expands("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(b: Expander, x: Value, groups: int) -> Value:
    """Channels as [groups, c / groups], transposed."""
    batch, channels, *rest = x.shape
    x = b.reshape(x, (batch, groups, channels // groups, *rest))
    x = b.transpose(x, (0, 2, 1, *range(3, x.rank)))
    return b.reshape(x, b.type.dims)
