"""Fractional max pooling: windows whose places are drawn. aten/src/ATen/native/FractionalMaxPool2d.cpp and 3d."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.expansions.nn.pooling import largest, zero_results
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(
    b: Expander, x: Value, kernel: Sequence[int], output_size: Sequence[int], samples: Value
) -> tuple[Value, ...]:
    """The largest element of each window and its place in the flattened plane; one sample a plane and dim."""
    if 0 in b.type.dims:
        return zero_results(b)
    if min(kernel) < 1:  # eager takes negative ones
        raise b.unsupported("windows without elements")
    space = int(b.op.name[len("aten.fractional_max_pool")])
    first = x.rank - space
    sizes = [s for s in x.shape[first:] if isinstance(s, int)]
    if len(sizes) != space:
        raise b.unsupported("windows over a run-time size")
    if x.dtype not in (dt.float32, dt.float64) or samples.dtype != x.dtype:
        raise b.unsupported(f"{x.dtype} with samples of {samples.dtype}")
    planes = product(x.shape[:first])
    # Samples for more images than there are: eager takes the first ones.
    samples = b.slice(samples, 0, 0, x.shape[0] if first == 2 else 1)
    samples = b.reshape(samples, (planes, space))
    shape = (planes, *output_size, *kernel)
    plane = b.broadcast(b.iota(size=planes, dtype=dt.int64), shape, (0,))
    indices = []
    for axis, (size, length, count) in enumerate(zip(sizes, kernel, output_size, strict=True)):
        # In two dims the samples are for the width first.
        column = space - 1 - axis if space == 2 else axis
        sample = b.reshape(b.slice(samples, 1, column, column + 1), (planes,))
        start = b.broadcast(_starts(b, sample, size - length, count), shape, (0, 1 + axis))
        inside = b.broadcast(b.iota(size=length, dtype=dt.int64), shape, (1 + space + axis,))
        indices.append(b.add(start, inside))
    windows = b.emit("gather", b.reshape(x, (planes, *sizes)), plane, *indices, dims=tuple(range(1 + space)))[0]
    place = functools.reduce(
        lambda place, pair: b.add(b.mul(place, const(b, place, pair[1])), pair[0]),
        zip(indices[1:], sizes[1:], strict=True),
        indices[0],
    )
    results = largest(b, windows, place, tuple(range(1 + space, windows.rank)))
    return tuple(b.reshape(value, b.type.dims) for value in results)


def _starts(b: Expander, sample: Value, room: int, count: int) -> Value:
    """[planes, count]: trunc((i + sample) * alpha) - trunc(sample * alpha), the last one at the end of the room."""
    shape = (*sample.shape, count)
    last = b.full(room, shape, dt.int64)
    if count == 1:
        return last
    alpha = room / (count - 1)
    if sample.dtype == dt.float32:
        alpha = struct.unpack("f", struct.pack("f", alpha))[0]
    sample = b.broadcast(sample, shape, (0,))
    step = b.broadcast(b.iota(size=count, dtype=sample.dtype), shape, (1,))
    scaled = [b.cast(b.mul(v, const(b, v, alpha)), dt.int64) for v in (b.add(step, sample), sample)]
    number = b.broadcast(b.iota(size=count, dtype=dt.int64), shape, (1,))
    return b.select(b.eq(number, const(b, number, count - 1)), last, b.sub(*scaled))
