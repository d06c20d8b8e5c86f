"""Fake quantization: rounding to what integers of a scale and a zero point can hold, in floats."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, is_nan, tensor
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


def _fake_quantize(
    b: Expander, x: Value, scale: Value, zero: Value, low: int, high: int, wide: DType
) -> tuple[Value, Value]:
    """(clamp(round(x / scale) + zero) - zero) * scale, and where nothing was clamped; NaN counts as below.

    Eager multiplies by the reciprocal of the scale, which is rounded to float32, and so is the scale. A zero point
    that is no integer is added before it rounds.
    """
    whole = zero.dtype.is_int
    inverse = b.div(const(b, scale, 1), scale)
    scale, inverse, zero = (b.cast(v, wide) for v in (scale, inverse, zero))
    steps = b.mul(b.cast(x, wide), inverse)
    level = b.add(b.round(steps), zero) if whole else b.round(b.add(steps, zero))
    lowest, highest = const(b, level, low), const(b, level, high)
    inside = b.and_(b.ge(level, lowest), b.le(level, highest))
    held = b.select(is_nan(b, level), lowest, b.min(b.max(level, lowest), highest))
    return b.cast(b.mul(b.sub(held, zero), scale), x.dtype), inside


@expands("aten.fake_quantize_per_tensor_affine_cachemask.default")
def per_tensor(b: Expander, x: Value, scale: Any, zero: Any, low: int, high: int) -> tuple[Value, Value]:
    scale, zero = (
        b.broadcast(tensor(b, v, dtype), x.shape, ()) for v, dtype in ((scale, dt.float32), (zero, dt.int64))
    )
    return _fake_quantize(b, x, scale, zero, low, high, dt.float32)


@expands("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def per_tensor_at_run_time(
    b: Expander, x: Value, scale: Value, zero: Value, enabled: Value, low: int, high: int
) -> tuple[Value, Value]:
    """With parameters of one element; where ``enabled`` is 0, x as it is."""
    scale, zero, enabled = (b.broadcast(b.reshape(v, ()), x.shape, ()) for v in (scale, zero, enabled))
    out, inside = _fake_quantize(b, x, b.cast(scale, dt.float32), zero, low, high, dt.float32)
    on = b.ne(enabled, const(b, enabled, 0))
    return b.select(on, out, x), b.or_(inside, b.not_(on))


@expands("aten.fake_quantize_per_channel_affine_cachemask.default")
def per_channel(
    b: Expander, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> tuple[Value, Value]:
    """With parameters for each place along an axis."""
    scale, zero = (b.broadcast(v, x.shape, (axis,)) for v in (b.cast(scale, dt.float32), zero))
    return _fake_quantize(b, x, scale, zero, low, high, opmath(x.dtype))
