"""Upsampling to a static size: source elements chosen by index, then blended. aten/src/ATen/native/UpSample.h."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.contract.expansions.join import concat
from torchstone.compiler.contract.expansions.windows import static_size
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt

# More slices than this for one dim: a gather is what is wanted.
MOST_PARTS = 512


def take(b: Expander, x: Value, dim: int, indices: Sequence[int]) -> Value:
    """The elements at static indices along ``dim``: runs of evenly spaced or equal indices are one slice each."""
    parts: list[Value] = []
    at = 0
    while at < len(indices):
        start = indices[at]
        step = indices[at + 1] - start if at + 1 < len(indices) else 1
        end = at + 1
        while step >= 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        run = end - at
        if step == 0:
            one = b.slice(x, dim, start, start + 1)
            parts.append(b.broadcast(one, (*x.shape[:dim], run, *x.shape[dim + 1 :])))
        else:
            parts.append(b.slice(x, dim, start, start + (run - 1) * step + 1, max(step, 1)))
        at = end
    if len(parts) > MOST_PARTS:
        raise b.unsupported(f"{len(parts)} separate slices")
    return concat(b, parts, dim)


def _sizes(b: Expander, x: Value) -> tuple[list[int], list[int]]:
    """The sizes of the image before and after, which must be static."""
    if not all(isinstance(s, int) for s in (*x.shape[2:], *b.type.dims[2:])):
        raise b.unsupported("a run-time size")
    return [static_size(s) for s in x.shape[2:]], [static_size(s) for s in b.type.dims[2:]]


def _round(number: float, dtype: DType) -> float:
    """Round to what eager computes coordinates in: float32, or float64 for float64 images."""
    return number if dtype == dt.float64 else _float32(number)


def _float32(number: float) -> float:
    import struct

    return struct.unpack("f", struct.pack("f", number))[0]


@expands(
    "aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default",
    "aten._upsample_nearest_exact1d.default", "aten._upsample_nearest_exact2d.default",
    "aten._upsample_nearest_exact3d.default",
)  # fmt: skip
def nearest(b: Expander, x: Value, output_size: Any, *scales: float | None) -> Value:
    """Element floor(i * scale); of the exact ones, floor((i + 0.5) * scale)."""
    shift = 0.5 if "_exact" in b.op.name else 0.0
    given = scales or (None,) * (x.rank - 2)
    for dim, (size, count, factor) in enumerate(zip(*_sizes(b, x), given, strict=True), 2):
        scale = _float32(1.0 / factor if factor is not None and factor > 0 else size / count)
        indices = [min(math.floor(_float32(_float32(i + shift) * scale)), size - 1) for i in range(count)]
        x = take(b, x, dim, indices)
    return x


def _source(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType, cubic: bool) -> list[float]:
    """The fractional coordinate in the source of each element (area_pixel_compute_source_index)."""
    if align_corners:
        scale = _round((size - 1) / (count - 1), dtype) if count > 1 else 0.0
        return [_round(scale * i, dtype) for i in range(count)]
    scale = _round(1.0 / factor if factor is not None and factor > 0 else size / count, dtype)
    out = [_round(_round(scale * (i + 0.5), dtype) - 0.5, dtype) for i in range(count)]
    return out if cubic else [max(v, 0.0) for v in out]


def _weights(b: Expander, numbers: Sequence[float], like: Value, dim: int) -> Value:
    vector = b.emit("constant", value=tuple(numbers), shape=(len(numbers),), dtype=like.dtype)[0]
    return b.broadcast(vector, like.shape, (dim,))


@expands(
    "aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default",
)  # fmt: skip
def linear(b: Expander, x: Value, output_size: Any, align_corners: bool, *scales: float | None) -> Value:
    """The two nearest elements blended, along the last dim first."""
    if not x.dtype.is_float:
        raise b.unsupported(f"{x.dtype}")
    sizes, counts = _sizes(b, x)
    given = scales or (None,) * len(sizes)
    out = b.cast(x, opmath(x.dtype))
    for axis in reversed(range(len(sizes))):
        size, count, dim = sizes[axis], counts[axis], axis + 2
        at = _source(size, count, align_corners, given[axis], out.dtype, cubic=False)
        low = [min(math.floor(v), size - 1) for v in at]
        high = [min(v + 1, size - 1) for v in low]
        upper = [_round(min(v - i, 1.0), out.dtype) for v, i in zip(at, low, strict=True)]
        left, right = take(b, out, dim, low), take(b, out, dim, high)
        out = b.add(
            b.mul(left, _weights(b, [_round(1.0 - w, out.dtype) for w in upper], left, dim)),
            b.mul(right, _weights(b, upper, right, dim)),
        )
    return b.cast(out, b.type.dtype)


def _cubic_taps(t: float) -> list[float]:
    """Weights of the four elements around a point (Keys' kernel, a = -0.75)."""
    a = -0.75

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@expands("aten.upsample_bicubic2d.default")
def bicubic(b: Expander, x: Value, output_size: Any, align_corners: bool, *scales: float | None) -> Value:
    """Four elements blended in each dim, those past a border being the border's."""
    if not x.dtype.is_float:
        raise b.unsupported(f"{x.dtype}")
    sizes, counts = _sizes(b, x)
    given = scales or (None, None)
    out = b.cast(x, opmath(x.dtype))
    for axis in (1, 0):
        size, count, dim = sizes[axis], counts[axis], axis + 2
        at = _source(size, count, align_corners, given[axis], out.dtype, cubic=True)
        base = [math.floor(v) for v in at]
        taps = [_cubic_taps(_round(v - i, out.dtype)) for v, i in zip(at, base, strict=True)]
        total: Value | None = None
        for k in range(4):
            part = take(b, out, dim, [min(max(i + k - 1, 0), size - 1) for i in base])
            part = b.mul(part, _weights(b, [w[k] for w in taps], part, dim))
            total = part if total is None else b.add(total, part)
        assert total is not None
        out = total
    return b.cast(out, b.type.dtype)
