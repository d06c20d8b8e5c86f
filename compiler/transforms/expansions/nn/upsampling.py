"""Upsampling to a static size: each element a blend of source elements. aten/src/ATen/native/UpSample.h."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import convert_number
from torchstone.compiler.transforms.expansions.nn.blending import Weights, blend, transposed
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# (size, count, align_corners, scale factor, dtype) -> the rows of ``count`` elements made of ``size``.
Mode: TypeAlias = Callable[[int, int, bool, "float | None", DType], list[Weights]]


def _float32(number: float) -> float:
    return struct.unpack("f", struct.pack("f", number))[0]


def _round(number: float, dtype: DType) -> float:
    """Round to what eager computes coordinates in: float32, or float64 for float64 images."""
    return number if dtype == dt.float64 else _float32(number)


def _scale(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType) -> float:
    """How far apart the elements lie in the source (area_pixel_compute_scale)."""
    if align_corners:
        return _round((size - 1) / (count - 1), dtype) if count > 1 else 0.0
    return _round(1.0 / factor if factor is not None and factor > 0 else size / count, dtype)


def _source(scale: float, index: int, align_corners: bool, dtype: DType) -> float:
    """The coordinate of an element in the source (area_pixel_compute_source_index)."""
    if align_corners:
        return _round(scale * index, dtype)
    # Multiplied and added in one: rounded once.
    return _round(float(Fraction(scale) * Fraction(index + 0.5) - Fraction(1, 2)), dtype)


def _nearest(shift: float) -> Mode:
    """Element floor((i + shift) * scale)."""

    def rows(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType) -> list[Weights]:
        scale = _scale(size, count, False, factor, dt.float32)
        places = (math.floor(_float32(_float32(i + shift) * scale)) for i in range(count))
        return [[(min(place, size - 1), 1.0)] for place in places]

    return rows


def _nearest_of_gradient(
    size: int, count: int, align_corners: bool, factor: float | None, dtype: DType
) -> list[Weights]:
    """Eager's gradient heeds no factor where the image stays as it is or doubles."""
    whole = factor if count not in (size, 2 * size) else None
    return _nearest(0.0)(size, count, align_corners, whole, dtype)


# Eager's floor is that of the coordinate in float32, whatever it computes in.


def _linear(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType) -> list[Weights]:
    """The two nearest elements."""
    if size == count:
        return [[(i, 1.0), (i, 0.0)] for i in range(size)]
    scale = _scale(size, count, align_corners, factor, dtype)
    rows: list[Weights] = []
    for i in range(count):
        at = max(_source(scale, i, align_corners, dtype), 0.0)
        low = min(math.floor(_float32(at)), size - 1)
        upper = min(max(_round(at - low, dtype), 0.0), 1.0)
        rows.append([(low, _round(1.0 - upper, dtype)), (min(low + 1, size - 1), upper)])
    return rows


def _keys(x: float, a: float) -> float:
    """Keys' cubic convolution kernel."""
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0


def _cubic(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType) -> list[Weights]:
    """Four elements, those past a border being the border's."""
    scale = _scale(size, count, align_corners, factor, dtype)
    rows: list[Weights] = []
    for i in range(count):
        at = _source(scale, i, align_corners, dtype)
        low = min(math.floor(_float32(at)), size - 1)
        t = min(max(_round(at - low, dtype), 0.0), 1.0)
        rows.append([(min(max(low + k, 0), size - 1), _keys(t - k, -0.75)) for k in (-1, 0, 1, 2)])
    return rows


def _triangle(x: float) -> float:
    return max(1.0 - abs(x), 0.0)


def _antialiased(kernel: Callable[[float], float], reach: float) -> Mode:
    """Every element within the kernel's reach, which is as many times wider as the image becomes smaller."""

    def rows(size: int, count: int, align_corners: bool, factor: float | None, dtype: DType) -> list[Weights]:
        if size == count:
            return [[(i, 1.0)] for i in range(size)]
        scale = _scale(size, count, align_corners, factor, dtype)
        wider = max(scale, 1.0)
        support = _round(reach * wider, dtype)
        out: list[Weights] = []
        for i in range(count):
            center = _round(scale * (i + 0.5), dtype)
            first = max(math.trunc(_round(center - support, dtype) + 0.5), 0)
            last = min(math.trunc(_round(center + support, dtype) + 0.5), size)
            weights = [kernel((k - center + 0.5) / wider) for k in range(first, last)]
            total = math.fsum(weights)
            out.append([(first + k, w / total if total else w) for k, w in enumerate(weights)])
        return out

    return rows


def _rows(
    b: Expander, mode: Mode, sizes: Sequence[Dim], counts: Sequence[Dim], arguments: Sequence[Any], dtype: DType
) -> list[list[Weights]]:
    """The rows for each dim of the image; ``arguments`` are align_corners, where the op has it, and the factors."""
    corners = [a for a in arguments if isinstance(a, bool)]
    factors = [a for a in arguments if not isinstance(a, bool)] or [None] * len(sizes)
    out: list[list[Weights]] = []
    for size, count, factor in zip(sizes, counts, factors, strict=True):
        if not isinstance(size, int) or not isinstance(count, int):
            raise b.unsupported("a run-time size")
        out.append(mode(size, count, any(corners), factor, dtype))
        if not all(out[-1]):
            raise b.unsupported(f"a factor of {factor} from size {size} to {count} leads outside the image")
    return out


def _forward(b: Expander, mode: Mode, x: Value, *arguments: Any) -> Value:
    shape = b.type.dims
    if 0 in shape:
        return b.full(convert_number(0, x.dtype), shape, x.dtype)
    if "_aa." in b.op.name and shape[3] == 1 and shape[2] != x.shape[2]:
        raise b.unsupported("a width of 1, where eager gives every row the first one's value")
    rows = _rows(b, mode, x.shape[2:], shape[2:], arguments, opmath(x.dtype))
    if not x.dtype.is_float and any(len(row) > 1 for along in rows for row in along):
        raise b.unsupported(f"{x.dtype}")
    out = b.cast(x, opmath(x.dtype))
    for dim, along in reversed([*enumerate(rows, 2)]):
        out = blend(b, out, dim, along)
    return b.cast(out, x.dtype)


def _backward(b: Expander, mode: Mode, grad: Value, shape: Sequence[Dim], *arguments: Any) -> Value:
    """Each gradient goes, by the same weights, to the elements that its element was made of."""
    if 0 in shape:
        return b.full(convert_number(0, grad.dtype), tuple(shape), grad.dtype)
    out = b.cast(grad, opmath(grad.dtype))
    rows = _rows(b, mode, shape[2:], grad.shape[2:], arguments, out.dtype)
    for dim, along in reversed([*enumerate(rows, 2)]):
        size = shape[dim]
        assert isinstance(size, int)
        out = blend(b, out, dim, transposed(along, size))
    return b.cast(out, grad.dtype)


def _register(mode: Mode, *names: str, gradient: Mode | None = None) -> None:
    for name in names:
        expands.row(f"aten.{name}.default", lambda b, x, output_size, *arguments: _forward(b, mode, x, *arguments))
        expands.row(
            f"aten.{name}_backward.default",
            lambda b, grad, output_size, shape, *arguments: _backward(b, gradient or mode, grad, shape, *arguments),
        )


_register(_nearest(0.0), *(f"upsample_nearest{n}d" for n in (1, 2, 3)), gradient=_nearest_of_gradient)
_register(_nearest(0.5), *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)))
_register(_linear, "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
_register(_cubic, "upsample_bicubic2d")
_register(_antialiased(_triangle, 1.0), "_upsample_bilinear2d_aa")
_register(_antialiased(lambda x: _keys(x, -0.5), 2.0), "_upsample_bicubic2d_aa")
