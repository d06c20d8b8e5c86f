"""Casts a target does not have, through casts it may have. Each step is exact, or the one rounding of the cast."""

from __future__ import annotations

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.legalizations.common import Formula
from torchstone.compiler.transforms.rules import Declined, Expander, legalizes

_SIGNED = {"uint8": dt.int8, "uint16": dt.int16, "uint32": dt.int32, "uint64": dt.int64}


@legalizes("flat.cast")
def cast(b: Expander, x: Value, *, dtype: DType) -> Value:
    """Dispatch on the pair of dtypes; each rule below moves the pair towards one that targets have."""
    source = x.dtype
    if source.is_complex or dtype.is_complex or source == dt.float64 or dtype == dt.float64:
        raise Declined
    if any(d.is_float and d.bits == 8 for d in (source, dtype)):
        if dt.float32 in (source, dtype):
            raise Declined
        return b.cast(b.cast(x, dt.float32), dtype)  # as eager converts
    if dtype.is_bool:
        return b.ne(x, b.full_like(x, 0))
    if source.is_bool:
        # Through int32, or by choice where that is the cast that is missing.
        if dtype != dt.int32:
            return b.cast(b.cast(x, dt.int32), dtype)
        return b.select(x, b.full(1, x.shape, dtype), b.full(0, x.shape, dtype))
    if source.is_half and dtype != dt.float32:
        return b.cast(b.cast(x, dt.float32), dtype)
    if source.is_float:
        return _from_float(b, x, dtype)
    return _from_int(b, x, dtype)


def _from_float(b: Expander, x: Value, dtype: DType) -> Value:
    if dtype.is_half:
        raise Declined
    if dtype == dt.int64:
        return _float_to_int64(b, x)
    if dtype == dt.int32:
        raise Declined
    if dtype.bits < 32:
        return b.cast(b.cast(x, dt.int32), dtype)
    return b.cast(b.cast(x, dt.int64), dtype)


def _from_int(b: Expander, x: Value, dtype: DType) -> Value:
    source = x.dtype
    if dtype.is_float and source.bits == 64:
        if dtype.is_half:
            return b.cast(b.cast(x, dt.float32), dtype)
        return _int64_to_float32(b, x)
    if dtype.is_float:
        # Every value of the narrower integers is one of int32, and of uint32 one of int64.
        wide = dt.int64 if source == dt.uint32 else dt.int32
        if source == wide:
            raise Declined
        return b.cast(b.cast(x, wide), dtype)
    if source.name in _SIGNED and dtype == _SIGNED[source.name]:
        raise Declined
    if source.name in _SIGNED:
        # The bits as a signed integer, widened, with the copies of the sign bit cleared.
        bits = b.cast(x, _SIGNED[source.name])
        if dtype.bits <= source.bits:
            return b.cast(bits, dtype)
        wide = b.cast(bits, dt.int32 if source.bits < 32 else dt.int64)
        return b.cast(b.and_(wide, b.full_like(wide, (1 << source.bits) - 1)), dtype)
    if dtype.name in _SIGNED and dtype.bits != source.bits:
        return b.cast(b.cast(x, _SIGNED[dtype.name]), dtype)
    if dt.int32 in (source, dtype):
        raise Declined
    return b.cast(b.cast(x, dt.int32), dtype)


def _float_to_int64(b: Expander, x: Value) -> Value:
    """Cut the magnitude at bits 22 and 44: three pieces that int32 holds, joined in int64. Every step is exact.

    A magnitude of 63 or 64 bits gives the bits of the uint64.
    """
    t = Formula(b, b.trunc(x))
    a = t.abs()
    high = (a * 2.0**-44).floor()
    rest = a - high * 2.0**44
    middle = (rest * 2.0**-22).floor()
    low = rest - middle * 2.0**22
    pieces = [Formula(b, b.cast(b.cast(p.value, dt.int32), dt.int64)) for p in (high, middle, low)]
    magnitude = (pieces[0] * 2**22 + pieces[1]) * 2**22 + pieces[2]
    return (t < 0.0).where(-magnitude, magnitude).value


def _int64_to_float32(b: Expander, x: Value) -> Value:
    """Round once, to nearest even, with int32 -> float32 as the only rounding cast.

    A magnitude of more than 30 bits is shifted right by a multiple of 5 until it has at most 30, so at least 26, and
    what falls out is kept as a lowest bit of 1, which decides ties as the lost bits would; then it is scaled back.
    """
    n = Formula(b, x)
    if x.dtype == dt.uint64:
        raise Declined
    # Work on a number that is not negative; the minimum of int64, whose negation wraps, is rounded on its own.
    negative = n < 0
    magnitude = negative.where(-n, n)
    shifted, scale = magnitude, Formula(b, b.full(1.0, x.shape, dt.float32))
    for amount in range(5, 36, 5):
        divisor = 1 << amount
        quotient = magnitude / divisor
        sticky = Formula(b, b.cast(((magnitude - quotient * divisor) != 0).value, dt.int64))
        take = magnitude >= 1 << (25 + amount)
        shifted = take.where(quotient | sticky, shifted)
        scale = take.where(float(divisor), scale)
    rounded = Formula(b, b.cast(b.cast(shifted.value, dt.int32), dt.float32)) * scale
    signed = negative.where(-rounded, rounded)
    return (n == -(1 << 63)).where(-(2.0**63), signed).value
