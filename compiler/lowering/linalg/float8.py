"""8-bit floats: decoding to float32 and rounding from it, in integer arithmetic (LLVM has no such type on a CPU).

Formats as in the OCP specification and ``torch/headeronly/util/Float8_*.h``: ``fn`` has no infinity (torch saturates),
``fnuz`` neither infinity nor negative zero (its one NaN is 0x80), ``e8m0fnu`` is a bare power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.linalg import basic as s


@dataclass(frozen=True, slots=True)
class Format:
    """``maximum`` is the largest finite code without sign, ``nan`` the code of a NaN."""

    mantissa: int
    bias: int
    maximum: int
    nan: int
    infinite: bool = False
    negative_zero: bool = True
    saturates: bool = False


FORMATS = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7F, saturates=True),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, 0x80, negative_zero=False),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7F, infinite=True),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, 0x80, negative_zero=False),
}


def _bits(value: int) -> Any:
    return s.constant(s.integer(32), value)


def _if(condition: Any, a: Any, b: Any) -> Any:
    return mlir.arith.select(condition, a, b)


def decode(dtype: DType, code: Any) -> Any:
    """Return the float32 value of an i8 code; exact."""
    arith = mlir.arith
    f32 = s.floating(32)
    wide = arith.extui(s.integer(32), code)
    if dtype.name == "float8_e8m0fnu":
        normal = arith.bitcast(f32, arith.shli(wide, _bits(23)))
        smallest = arith.bitcast(f32, _bits(1 << 22))
        value = _if(s.compare_int("eq", wide, _bits(0)), smallest, normal)
        return _if(s.compare_int("eq", wide, _bits(255)), s.constant(f32, float("nan")), value)
    form = FORMATS[dtype.name]
    magnitude = arith.andi(wide, _bits(0x7F))
    # Put exponent and mantissa where float32 has them and multiply the bias away: subnormals come out right.
    shifted = arith.bitcast(f32, arith.shli(magnitude, _bits(23 - form.mantissa)))
    value = arith.mulf(shifted, s.constant(f32, 2.0 ** (127 - form.bias)))
    if form.infinite:
        value = _if(s.compare_int("eq", magnitude, _bits(form.maximum + 1)), s.constant(f32, float("inf")), value)
    nan = s.compare_int("ugt", magnitude if form.negative_zero else wide, _bits(form.maximum + form.infinite))
    if not form.negative_zero:
        nan = s.compare_int("eq", wide, _bits(form.nan))
    negative = s.compare_int("uge", wide, _bits(0x80))
    value = _if(negative, arith.negf(value), value)
    return _if(nan, s.constant(f32, float("nan")), value)


def encode(dtype: DType, value: Any) -> Any:
    """Return the i8 code nearest to a float32 value, ties to even; out of range as torch has it."""
    arith = mlir.arith
    i32 = s.integer(32)
    bits = arith.bitcast(i32, value)
    magnitude = arith.andi(bits, _bits(0x7FFFFFFF))
    if dtype.name == "float8_e8m0fnu":
        return arith.trunci(s.integer(8), _encode_e8m0(bits, magnitude))
    form = FORMATS[dtype.name]
    shift = 23 - form.mantissa
    # Normal numbers: move the bias, add half of what is cut off (less one when even), cut. A carry into the exponent
    # is the right result.
    rebased = arith.subi(magnitude, _bits((127 - form.bias) << 23))
    odd = arith.andi(arith.shrui(magnitude, _bits(shift)), _bits(1))
    rounded = arith.addi(arith.addi(rebased, _bits((1 << (shift - 1)) - 1)), odd)
    normal = arith.shrui(rounded, _bits(shift))
    # Subnormal numbers: adding 2**k lets float32 round the mantissa at the right place.
    step = s.constant(s.floating(32), 2.0 ** (24 - form.bias - form.mantissa))
    moved = arith.addf(arith.bitcast(s.floating(32), magnitude), step)
    subnormal = arith.subi(arith.bitcast(i32, moved), arith.bitcast(i32, step))
    small = s.compare_int("ult", magnitude, _bits((128 - form.bias) << 23))
    code = _if(small, subnormal, normal)
    overflow = s.compare_int("ugt", code, _bits(form.maximum))
    overflow = arith.andi(overflow, arith.xori(small, s.constant(s.integer(1), 1)))
    beyond = form.maximum if form.saturates else form.maximum + 1 if form.infinite else form.nan
    code = _if(overflow, _bits(beyond), code)
    is_nan = s.compare_int("ugt", magnitude, _bits(0x7F800000))
    code = _if(is_nan, _bits(form.nan), code)
    sign = arith.andi(arith.shrui(bits, _bits(24)), _bits(0x80))
    if not form.negative_zero:
        # 0x80 is the NaN: neither it nor zero carries a sign.
        bare = arith.ori(s.compare_int("eq", code, _bits(0)), s.compare_int("eq", code, _bits(form.nan)))
        sign = _if(bare, _bits(0), sign)
    return arith.trunci(s.integer(8), arith.ori(code, sign))


def _encode_e8m0(bits: Any, magnitude: Any) -> Any:
    """Round a power of two by its mantissa, ties to even exponents; the sign is dropped, NaN and inf are 0xFF."""
    arith = mlir.arith
    exponent = arith.andi(arith.shrui(bits, _bits(23)), _bits(0xFF))
    guard = s.compare_int("ne", arith.andi(bits, _bits(0x400000)), _bits(0))
    sticky = s.compare_int("ne", arith.andi(bits, _bits(0x3FFFFF)), _bits(0))
    odd = s.compare_int("ugt", exponent, _bits(0))
    up = arith.andi(guard, arith.ori(sticky, odd))
    special = s.compare_int("eq", exponent, _bits(0xFF))
    return _if(special, _bits(0xFF), arith.addi(exponent, arith.extui(s.integer(32), up)))
