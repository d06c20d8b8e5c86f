"""Scalar code inside a loop body: constants, conversions, and how an element in memory becomes a scalar.

A *scalar* is an MLIR value, or a pair of them (real, imaginary) for a complex number. In memory a bool is an ``i8`` of
0 or 1 (a vectorizer packs ``i1`` into bits) and becomes an ``i1`` scalar. A float8 and a bfloat16 are *coded*: integers
that hold their bits, in memory and as scalars. LLVM keeps a bfloat16 as a float32 between blocks and, on the way back,
calls a function nobody has or uses an instruction that flushes subnormals; integers it leaves alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from torchstone.compiler import mlir
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.linalg import float8
from torchstone.compiler.lowering.linalg.basic import compare_float, compare_int, constant, floating, integer, is_nan

Scalar: TypeAlias = Any

__all__ = [
    "Scalar", "cast", "compare_float", "compare_int", "compute_bits", "constant", "element", "floating", "index",
    "integer", "is_coded", "is_float8", "is_nan", "literal", "load", "narrow", "resize", "store", "widen",
]  # fmt: skip


def is_float8(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 8


def is_coded(dtype: DType) -> bool:
    return is_float8(dtype) or dtype.name == "bfloat16"


@cache
def element(dtype: DType) -> Any:
    """Return the MLIR type of an element in memory."""
    if dtype.is_bool or is_coded(dtype):
        return integer(dtype.bits)
    return mlir.ir.Type.parse(dtype.mlir)


def index() -> Any:
    return mlir.ir.IndexType.get()


def literal(dtype: DType, value: Any) -> Scalar:
    """Return a scalar constant of this dtype."""
    if dtype.is_complex:
        part = element(dtype.real)
        value = complex(value)
        return constant(part, value.real), constant(part, value.imag)
    if dtype.is_bool:
        return constant(integer(1), bool(value))
    if is_coded(dtype):
        return narrow(dtype, constant(floating(32), value))
    return constant(element(dtype), value)


def load(dtype: DType, raw: Any) -> Scalar:
    """Turn an element in memory into a scalar."""
    if dtype.is_bool:
        return compare_int("ne", raw, constant(integer(8), 0))
    if dtype.is_complex:
        return mlir.complex.re(raw), mlir.complex.im(raw)
    return raw


def store(dtype: DType, scalar: Scalar) -> Any:
    """Turn a scalar into an element in memory."""
    if dtype.is_bool:
        return mlir.arith.extui(integer(8), scalar)
    if dtype.is_complex:
        return mlir.complex.create_(element(dtype), *scalar)
    return scalar


def widen(dtype: DType, scalar: Scalar, *, to: int = 32) -> Scalar:
    """Return a real or complex float scalar with parts of at least ``to`` bits."""
    if isinstance(scalar, tuple):
        return tuple(widen(dtype.real, part, to=to) for part in scalar)
    if is_coded(dtype):
        return widen(dt.float32, _decode(dtype, scalar), to=to)
    return scalar if dtype.bits >= to else mlir.arith.extf(floating(to), scalar)


def narrow(dtype: DType, scalar: Scalar, *, from_: int = 32) -> Scalar:
    """Round a float scalar with parts of ``from_`` bits to the dtype, to nearest even.

    float64 reaches a 16-bit float through float32, as eager does.
    """
    if isinstance(scalar, tuple):
        return tuple(narrow(dtype.real, part, from_=from_) for part in scalar)
    if dtype.bits <= 16 and from_ == 64:
        scalar, from_ = mlir.arith.truncf(floating(32), scalar), 32
    if is_coded(dtype):
        return _encode(dtype, scalar)
    return scalar if dtype.bits >= from_ else mlir.arith.truncf(element(dtype), scalar)


def _decode(dtype: DType, code: Any) -> Any:
    """Return the float32 value of a coded scalar: a bfloat16 is the upper half of one."""
    if is_float8(dtype):
        return float8.decode(dtype, code)
    wide = mlir.arith.extui(integer(32), code)
    return mlir.arith.bitcast(floating(32), mlir.arith.shli(wide, constant(integer(32), 16)))


def _encode(dtype: DType, value: Any) -> Any:
    """Round a float32 to a coded scalar, to nearest even; every NaN becomes the quiet one."""
    if is_float8(dtype):
        return float8.encode(dtype, value)
    arith, i32 = mlir.arith, integer(32)
    bits, sixteen = arith.bitcast(i32, value), constant(i32, 16)
    odd = arith.andi(arith.shrui(bits, sixteen), constant(i32, 1))
    rounded = arith.shrui(arith.addi(bits, arith.addi(odd, constant(i32, 0x7FFF))), sixteen)
    return arith.trunci(integer(16), arith.select(is_nan(value), constant(i32, 0x7FC0), rounded))


def compute_bits(dtype: DType) -> int:
    """Return the width in which eager computes with a float dtype: 32 for the 16-bit ones."""
    return max(32, dtype.bits)


def cast(source: DType, target: DType, x: Scalar) -> Scalar:
    """Convert a scalar as ``flat.cast`` says."""
    if source == target:
        return x
    if target.is_bool:
        return _to_bool(source, x)
    if source.is_complex:
        if target.is_complex:
            return cast(source.real, target.real, x[0]), cast(source.real, target.real, x[1])
        return cast(source.real, target, x[0])
    if target.is_complex:
        return cast(source, target.real, x), literal(target.real, 0)
    if source.is_float:
        return _float_to_float(source, target, x) if target.is_float else _float_to_int(source, target, x)
    if target.is_float:
        return _int_to_float(source, target, x)
    return resize(x, 1 if source.is_bool else source.bits, target.bits, signed=source.is_signed)


def resize(x: Any, bits: int, to: int, *, signed: bool) -> Any:
    """Extend or wrap an integer scalar."""
    if to == bits:
        return x
    if to < bits:
        return mlir.arith.trunci(integer(to), x)
    return mlir.arith.extsi(integer(to), x) if signed else mlir.arith.extui(integer(to), x)


def _to_bool(source: DType, x: Scalar) -> Any:
    if source.is_complex:
        parts = [_to_bool(source.real, part) for part in x]
        return mlir.arith.ori(*parts)
    if source.is_float:
        return compare_float("ne", widen(source, x), constant(floating(compute_bits(source)), 0))
    return compare_int("ne", x, literal(source, 0))


def _float_to_float(source: DType, target: DType, x: Any) -> Any:
    bits = compute_bits(source)
    x = widen(source, x, to=bits)
    if target.bits > bits:
        return mlir.arith.extf(floating(target.bits), x)
    return narrow(target, x, from_=bits)


def _float_to_int(source: DType, target: DType, x: Any) -> Any:
    """Truncate; out of range, what x86 gives: through int64 for unsigned types but uint16, else int32 for short ones.

    Of narrower floats than float64, those beyond int32 are multiples of 256, and either way gives a uint8 of 0.
    """
    x, bits = widen(source, x), compute_bits(source)
    if target.bits == 64 and not target.is_signed:
        limit = constant(floating(bits), 2.0**63)
        large = compare_float("ge", x, limit)
        low = mlir.arith.fptosi(integer(64), mlir.arith.select(large, mlir.arith.subf(x, limit), x))
        high = mlir.arith.xori(low, constant(integer(64), 1 << 63))
        return mlir.arith.select(large, high, low)
    through_int64 = not target.is_signed and (target.bits == 32 or (target.bits == 8 and bits == 64))
    via = 64 if through_int64 else max(32, target.bits)
    return resize(mlir.arith.fptosi(integer(via), x), via, target.bits, signed=True)


def _int_to_float(source: DType, target: DType, x: Any) -> Any:
    bits = compute_bits(target)
    convert = mlir.arith.sitofp if source.is_signed else mlir.arith.uitofp
    return narrow(target, convert(floating(bits), x), from_=bits)
