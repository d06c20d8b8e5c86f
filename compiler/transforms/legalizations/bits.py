"""Bits of integers by counting: each number becomes a row of zeros and ones, in a last dim of its own."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.legalizations.common import legalization, needs
from torchstone.compiler.transforms.rules import Expander


def _powers(b: Expander, x: Value) -> Value:
    """2**i for each bit but the sign, along a last dim behind those of ``x``."""
    values = tuple(1 << i for i in range(x.dtype.bits - 1))
    row = b.emit("constant", value=values, shape=(len(values),), dtype=x.dtype)[0]
    return b.broadcast(row, (*x.shape, len(values)), (x.rank,))


def _beside(b: Expander, x: Value, like: Value) -> Value:
    return b.broadcast(x, like.shape, tuple(range(x.rank)))


def _negative(b: Expander, x: Value) -> Value:
    return b.lt(x, b.full_like(x, 0))


def _least(b: Expander, x: Value) -> Value:
    return b.full_like(x, -(1 << (x.dtype.bits - 1)))


def _bits(b: Expander, x: Value) -> Value:
    """The bits but the sign, lowest first: x / 2**i is rounded down, as what is divided is not negative."""
    low = b.select(_negative(b, x), b.sub(x, _least(b, x)), x)
    powers = _powers(b, x)
    shifted = b.div(_beside(b, low, powers), powers)
    two = b.full_like(shifted, 2)
    return b.sub(shifted, b.mul(b.div(shifted, two), two))


@legalization("and", "or", "xor")
def bitwise(b: Expander, x: Value, y: Value) -> Value:
    """Bit by bit; that of the sign is worth -2**(bits - 1). xor of bools: (x or y) and not (x and y)."""
    name = b.op.name.removeprefix("flat.")
    if name == "xor" and x.dtype.is_bool:
        return b.and_(b.or_(x, y), b.not_(b.and_(x, y)))
    needs(b, dt.int32, dt.int64)
    bits, others = _bits(b, x), _bits(b, y)
    if name == "xor":
        difference = b.sub(bits, others)
        bits = b.mul(difference, difference)
    else:
        bits = (b.min if name == "and" else b.max)(bits, others)
    low = b.reduce(b.mul(bits, _powers(b, x)), "sum", (x.rank,))
    (sign,) = b.emit(name, _negative(b, x), _negative(b, y))
    return b.select(sign, b.add(low, _least(b, x)), low)


def _power(b: Expander, y: Value) -> Value:
    """2**y where it is a number of the dtype that is positive, else 0."""
    powers = _powers(b, y)
    places = b.broadcast(b.iota(size=powers.shape[-1], dtype=y.dtype), powers.shape, (y.rank,))
    return b.reduce(b.select(b.eq(_beside(b, y, powers), places), powers, b.full_like(powers, 0)), "sum", (y.rank,))


@legalization("shift_left")
def shift_left(b: Expander, x: Value, y: Value) -> Value:
    """x * 2**y, which wraps; by the width less one, 2**y is the least number."""
    needs(b, dt.int32, dt.int64)
    last = b.eq(y, b.full_like(y, y.dtype.bits - 1))
    return b.mul(x, b.select(last, _least(b, y), _power(b, y)))


@legalization("shift_right")
def shift_right(b: Expander, x: Value, y: Value) -> Value:
    """x / 2**y, rounded down; out of range, and by the width less one, 0 or -1."""
    needs(b, dt.int32, dt.int64)
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    sign = b.select(_negative(b, x), b.full_like(x, -1), zero)
    power = _power(b, y)
    divisor = b.max(power, one)
    quotient = b.div(x, divisor)
    below = b.lt(b.sub(x, b.mul(quotient, divisor)), zero)
    return b.select(b.eq(power, zero), sign, b.select(below, b.sub(quotient, one), quotient))
