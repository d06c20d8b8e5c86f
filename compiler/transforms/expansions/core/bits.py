"""Ops on the bits of numbers: nextafter, frexp, view as another dtype, hash_tensor."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import DType, Shape, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import BY_NAME
from torchstone.compiler.transforms.expansions.common import const, is_nan, stepwise, wrap_dims
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# Bits of the fraction of a float.
_FRACTION = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def bits_of(b: Expander, x: Value, *, signed: bool = True) -> Value:
    """The bits as an integer."""
    dtype = BY_NAME[f"{'int' if signed else 'uint'}{x.dtype.bits}"]
    return x if x.dtype == dtype else b.bitcast(x, dtype=dtype)


@expands("aten.nextafter.default")
def nextafter(b: Expander, x: Value, y: Value) -> Value:
    """The next number after x towards y: as integers, numbers of one sign are in order, and next to each other."""

    def formula(x: Value, y: Value) -> Value:
        bits, zero = bits_of(b, x), const(b, x, 0)
        one = const(b, bits, 1)
        away = b.eq(b.lt(x, y), b.gt(x, zero))
        out = b.bitcast(b.select(away, b.add(bits, one), b.sub(bits, one)), dtype=x.dtype)
        least = b.bitcast(one, dtype=x.dtype)
        out = b.select(b.eq(x, zero), b.select(b.gt(y, zero), least, b.neg(least)), out)
        out = b.select(b.eq(x, y), y, out)
        return b.select(is_nan(b, x), x, b.select(is_nan(b, y), y, out))

    return stepwise(b, formula, x, y)


@expands("aten.frexp.Tensor")
def frexp(b: Expander, x: Value) -> tuple[Value, Value]:
    """x = mantissa * 2**exponent with a mantissa in [0.5, 1); 0, infinities and NaN are their own, with exponent 0."""
    wide = b.cast(x, opmath(x.dtype))
    fraction = _FRACTION[wide.dtype.name]
    most = (1 << (wide.dtype.bits - 1 - fraction)) - 1
    # Subnormal numbers have leading zeros: made normal by a power of two first.
    low = b.lt(b.abs(wide), const(b, wide, 2.0 ** (2 - most // 2 - 1)))
    scaled = b.select(low, b.mul(wide, const(b, wide, 2.0**64)), wide)
    bits = bits_of(b, scaled)
    field = const(b, bits, most)
    shift = const(b, bits, fraction)
    exponent = b.sub(b.and_(b.shift_right(bits, shift), field), const(b, bits, most // 2 - 1))
    exponent = b.sub(exponent, b.select(low, const(b, bits, 64), const(b, bits, 0)))
    sign_and_fraction = b.and_(bits, b.not_(b.shift_left(field, shift)))
    mantissa = b.bitcast(b.or_(sign_and_fraction, const(b, bits, (most // 2 - 1) << fraction)), dtype=wide.dtype)
    special = b.or_(b.eq(wide, const(b, wide, 0)), b.not_(b.lt(b.abs(wide), const(b, wide, float("inf")))))
    return (
        b.cast(b.select(special, wide, mantissa), x.dtype),
        b.cast(b.select(special, const(b, bits, 0), exponent), dt.int32),
    )


@expands("aten.view.dtype")
def view_dtype(b: Expander, x: Value, dtype: DType) -> Value:
    """The same memory as another dtype: the last dim holds as many bits as before, the lowest first."""
    if x.dtype == dtype:
        return x
    if any(d.is_bool or d.is_complex for d in (x.dtype, dtype)):
        raise b.unsupported(f"{x.dtype} as {dtype}")
    source, target = (BY_NAME[f"uint{d.bits}"] for d in (x.dtype, dtype))
    bits = bits_of(b, x, signed=False)
    if target.bits < source.bits:
        parts = source.bits // target.bits
        shape = (*x.shape, parts)
        bits = b.cast(
            b.shift_right(b.broadcast(bits, shape, tuple(range(x.rank))), _offsets(b, shape, source, target)), target
        )
    elif target.bits > source.bits:
        parts = target.bits // source.bits
        shape = (*b.type.dims, parts)
        bits = b.cast(b.reshape(bits, shape), target)
        bits = b.reduce(b.shift_left(bits, _offsets(b, shape, target, source)), "sum", (len(shape) - 1,))
    bits = b.reshape(bits, b.type.dims)
    return bits if bits.dtype == dtype else b.bitcast(bits, dtype=dtype)


def _offsets(b: Expander, shape: Shape, wide: DType, narrow: DType) -> Value:
    """Where in a wide integer each narrow one of the last dim begins."""
    places = tuple(narrow.bits * i for i in range(wide.bits // narrow.bits))
    return b.broadcast(b.emit("constant", value=places, shape=(len(places),), dtype=wide)[0], tuple(shape))


@expands("aten.hash_tensor.default")
def hash_tensor(b: Expander, x: Value, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0) -> Value:
    """The exclusive or of all numbers as float64 or int64: a bit of it is the parity of how many have that bit."""
    if mode:
        raise b.unsupported(f"mode {mode}")
    dims = wrap_dims(tuple(dim), x.rank)
    wide = b.cast(x, dt.float64 if x.dtype.is_float else dt.int64)
    shape = (*x.shape, 64)
    place = b.broadcast(b.iota(size=64, dtype=dt.int64), shape, (x.rank,))
    bits = b.broadcast(bits_of(b, wide), shape, tuple(range(x.rank)))
    count = b.reduce(b.and_(b.shift_right(bits, place), const(b, bits, 1)), "sum", dims)
    parity = b.and_(count, const(b, count, 1))
    place = b.broadcast(b.iota(size=64, dtype=dt.int64), count.shape, (count.rank - 1,))
    out = b.reduce(b.shift_left(parity, place), "sum", (count.rank - 1,))
    return b.bitcast(b.reshape(out, b.type.dims), dtype=b.type.dtype)
