"""Scalar code inside a loop body: constants, conversions, and how an element in memory becomes a scalar.

A *scalar* is an MLIR value, or a pair of them (real, imaginary) for a complex number. In memory a bool is an ``i8`` of
0 or 1 (a vectorizer packs ``i1`` into bits) and becomes an ``i1`` scalar; a float8 is its ``i8`` of bits, both ways.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.runtime import mlir

Scalar: TypeAlias = Any

CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}  # ordered, but "ne", which is true for NaN
CMPI = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
ORDERED, UNORDERED = 7, 14


def is_float8(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 8


def element(dtype: DType) -> Any:
    """Return the MLIR type of an element in memory."""
    if dtype.is_bool or is_float8(dtype):
        return integer(8)
    return mlir.ir.Type.parse(dtype.mlir)


def integer(bits: int) -> Any:
    return mlir.ir.IntegerType.get_signless(bits)


def floating(bits: int) -> Any:
    return mlir.ir.F32Type.get() if bits == 32 else mlir.ir.F64Type.get()


def index() -> Any:
    return mlir.ir.IndexType.get()


def constant(type_: Any, value: Any) -> Any:
    """Return a constant of an integer, index or float type; an integer is taken modulo the width."""
    ir = mlir.ir
    if isinstance(type_, ir.IntegerType):
        width = type_.width
        value = int(value) & ((1 << width) - 1)
        value -= (1 << width) if width > 1 and value >> (width - 1) else 0
        return mlir.arith.ConstantOp(type_, ir.IntegerAttr.get(type_, value)).result
    if isinstance(type_, ir.IndexType):
        return mlir.arith.ConstantOp(type_, ir.IntegerAttr.get(type_, value)).result
    return mlir.arith.ConstantOp(type_, ir.FloatAttr.get(type_, float(value))).result


def literal(dtype: DType, value: Any) -> Scalar:
    """Return a scalar constant of this dtype."""
    if dtype.is_complex:
        part = element(dtype.real)
        value = complex(value)
        return constant(part, value.real), constant(part, value.imag)
    if dtype.is_bool:
        return constant(integer(1), bool(value))
    if is_float8(dtype):
        from torchstone.compiler.lowering.linalg.float8 import encode

        return encode(dtype, constant(floating(32), value))
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


def compare_int(relation: str, a: Any, b: Any) -> Any:
    return mlir.arith.cmpi(CMPI[relation], a, b)


def compare_float(relation: str, a: Any, b: Any) -> Any:
    return mlir.arith.cmpf(CMPF[relation], a, b)


def is_nan(x: Any) -> Any:
    return mlir.arith.cmpf(UNORDERED, x, x)


def widen(dtype: DType, scalar: Scalar, *, to: int = 32) -> Scalar:
    """Return a real or complex float scalar with parts of at least ``to`` bits."""
    if isinstance(scalar, tuple):
        return tuple(widen(dtype.real, part, to=to) for part in scalar)
    return scalar if dtype.bits >= to else mlir.arith.extf(floating(to), scalar)


def narrow(dtype: DType, scalar: Scalar, *, from_: int = 32) -> Scalar:
    """Round a float scalar with parts of ``from_`` bits to the dtype, to nearest even.

    float64 reaches a 16-bit float through float32, as eager does.
    """
    if isinstance(scalar, tuple):
        return tuple(narrow(dtype.real, part, from_=from_) for part in scalar)
    if dtype.bits == 16 and from_ == 64:
        scalar, from_ = mlir.arith.truncf(floating(32), scalar), 32
    return scalar if dtype.bits >= from_ else mlir.arith.truncf(element(dtype), scalar)


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
    if is_float8(source) or is_float8(target):
        return _cast_float8(source, target, x)
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
    if is_float8(source):
        return _to_bool(dt.float32, _cast_float8(source, dt.float32, x))
    if source.is_float:
        return compare_float("ne", x, literal(source, 0))
    return compare_int("ne", x, literal(source, 0))


def _float_to_float(source: DType, target: DType, x: Any) -> Any:
    bits = compute_bits(source)
    x = widen(source, x, to=bits)
    if target.bits > bits:
        return mlir.arith.extf(floating(target.bits), x)
    return narrow(target, x, from_=bits)


def _float_to_int(source: DType, target: DType, x: Any) -> Any:
    """Truncate; out of range, what x86 gives: through int32 for short types, through int64 for uint32 and uint64."""
    x, bits = widen(source, x), compute_bits(source)
    if target.bits == 64 and not target.is_signed:
        limit = constant(floating(bits), 2.0**63)
        large = compare_float("ge", x, limit)
        low = mlir.arith.fptosi(integer(64), mlir.arith.select(large, mlir.arith.subf(x, limit), x))
        high = mlir.arith.xori(low, constant(integer(64), 1 << 63))
        return mlir.arith.select(large, high, low)
    via = max(32, target.bits) if target.is_signed or target.bits < 32 else 64
    return resize(mlir.arith.fptosi(integer(via), x), via, target.bits, signed=True)


def _int_to_float(source: DType, target: DType, x: Any) -> Any:
    bits = compute_bits(target)
    convert = mlir.arith.sitofp if source.is_signed else mlir.arith.uitofp
    return narrow(target, convert(floating(bits), x), from_=bits)


def _cast_float8(source: DType, target: DType, x: Any) -> Any:
    from torchstone.compiler.lowering.linalg.float8 import decode, encode

    wide = decode(source, x) if is_float8(source) else cast(source, dt.float32, x)
    return encode(target, wide) if is_float8(target) else cast(dt.float32, target, wide)
