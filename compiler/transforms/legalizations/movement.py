"""Movement primitives in the restricted forms that targets take."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import DType, Shape, Value
from torchstone.compiler.ir.dims import Dim, floordiv, product
from torchstone.compiler.transforms.rules import Declined, Expander, legalizes

# Above this many, a target that has no windows makes too long a program of them.
MOST_PLACES = 256


@legalizes("flat.broadcast")
def broadcast(b: Expander, x: Value, *, shape: Shape, dims: tuple[int, ...]) -> Value:
    """To equal rank first: a reshape that puts a size 1 in every new dim, then sizes 1 are repeated in place."""
    if x.rank == len(shape):
        raise Declined
    aligned: list[Dim] = [1] * len(shape)
    for size, dim in zip(x.shape, dims, strict=True):
        aligned[dim] = size
    return b.broadcast(b.reshape(x, tuple(aligned)), shape, tuple(range(len(shape))))


@legalizes("flat.pad")
def pad(b: Expander, x: Value, value: Value, *, low: tuple[Dim, ...], high: tuple[Dim, ...]) -> Value:
    """Concat with the padding value, one dim at a time."""
    for dim, (before, after) in enumerate(zip(low, high, strict=True)):

        def border(amount: Dim, x: Value = x, dim: int = dim) -> list[Value]:
            shape = (*x.shape[:dim], amount, *x.shape[dim + 1 :])
            return [] if amount == 0 else [b.broadcast(value, shape, ())]

        pieces = [*border(before), x, *border(after)]
        x = b.concat(*pieces, dim=dim) if len(pieces) > 1 else x
    return x


@legalizes("flat.iota")
def iota(b: Expander, *, size: Dim, dtype: DType) -> Value:
    """A constant, where the size is known."""
    if not isinstance(size, int):
        raise Declined
    cast: Any = float if dtype.is_float else int
    return b.constant(value=tuple(cast(i) for i in range(size)), shape=(size,), dtype=dtype)


@legalizes("flat.reverse")
def reverse(b: Expander, x: Value, *, dims: tuple[int, ...]) -> Value:
    """One dim at a time."""
    if len(dims) == 1:
        raise Declined
    for dim in dims:
        x = b.reverse(x, dims=(dim,))
    return x


@legalizes("flat.slice")
def slice_(b: Expander, x: Value, *, start: tuple[Dim, ...], limit: tuple[Dim, ...], stride: tuple[int, ...]) -> Value:
    """Without strides: pad each strided dim to a multiple of its stride, and keep the first element of each step."""
    if all(s == 1 for s in stride):
        raise Declined
    x = b.emit("slice", x, start=start, limit=limit, stride=(1,) * x.rank)[0]
    for dim in range(x.rank):
        step = stride[dim]
        if step == 1:
            continue
        size = x.shape[dim]
        count = (size + (step - 1)) // step
        # The last step may be short: it is filled up with elements from the front, which are dropped again.
        missing = count * step - size
        if missing != 0:
            if not isinstance(size, int):
                raise Declined
            if size < step:
                x = b.slice(x, dim, 0, count)
                continue
            x = b.concat(x, b.slice(x, dim, 0, missing), dim=dim)
        # The elements of one step lie in one row of a dim that is there: no more dims are needed.
        before, after = x.shape[:dim], x.shape[dim + 1 :]
        if after:
            rows = b.reshape(x, (*before, count, after[0] * step, *after[1:]))
            x = b.slice(rows, dim + 1, 0, after[0])
        else:
            rows = b.reshape(x, (*before[:-1], product(before[-1:]) * count, step))
            x = b.reshape(b.slice(rows, rows.rank - 1, 0, 1), (*before, count))
    return x


@legalizes("flat.windows")
def windows(
    b: Expander, x: Value, *, dims: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Value:  # fmt: skip
    """One dim at a time: a slice for each place in a window, joined along a new last dim."""
    for dim, size, step, apart in zip(dims, kernel, stride, dilation, strict=True):
        if size > MOST_PLACES:
            raise b.unsupported(f"windows of {size} elements along one dim, more than {MOST_PLACES}")
        reach = (size - 1) * apart + 1
        last = floordiv(x.shape[dim] - reach, step) * step
        rows = [b.slice(x, dim, at, at + last + 1, step) for at in range(0, reach, apart)]
        columns = [b.reshape(row, (*row.shape, 1)) for row in rows]
        x = b.concat(*columns, dim=x.rank) if size > 1 else columns[0]
    return x
