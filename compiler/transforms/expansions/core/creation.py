"""Tensors made from nothing: fills, ranges, eye, triangles, uninitialized memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, convert_number, tensor
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

# A range up to this long is computed here, in float64 as eager does, and written as a constant.
LONGEST_CONSTANT = 4096


def fill(b: Expander, value: Any) -> Value:
    """The result's type filled with a number or a 0-d tensor."""
    return b.broadcast(tensor(b, value, b.type.dtype), b.type.dims, ())


@expands(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten._efficientzerotensor.default",
)  # fmt: skip
def zeros(b: Expander, *_: Any) -> Value:
    return fill(b, 0)


@expands("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(b: Expander, *_: Any) -> Value:
    return fill(b, 1)


@expands(
    "aten.full.default", "aten.full_like.default", "aten.new_full.default", "aten.fill.Scalar", "aten.fill.Tensor"
)  # fmt: skip
def full(b: Expander, *arguments: Any) -> Value:
    """The value follows the size, after the tensor that a ``new_`` op takes."""
    return fill(b, arguments[2 if b.op.name.startswith("aten.new_") else 1])


@expands("aten.scalar_tensor.default")
def scalar_tensor(b: Expander, value: Any, *_: Any) -> Value:
    return fill(b, value)


# Ranges.


def _sequence(b: Expander, at: Callable[[int], Any], length: int) -> Value:
    return b.emit(
        "constant", value=tuple(convert_number(at(i), b.type.dtype) for i in range(length)), shape=(length,),
        dtype=b.type.dtype,
    )[0]  # fmt: skip


@expands("aten.arange.default")
def arange(b: Expander, end: Any, *_: Any) -> Value:
    return _arange(b, 0, 1)


@expands("aten.arange.start")
def arange_start(b: Expander, start: Any, end: Any, *_: Any) -> Value:
    return _arange(b, start, 1)


@expands("aten.arange.start_step", "aten.range.default", "aten.range.step")
def arange_start_step(b: Expander, start: Any, end: Any, step: Any = 1, *_: Any) -> Value:
    return _arange(b, start, step)


@expands("aten.fft_fftfreq.default", "aten.fft_rfftfreq.default")
def frequencies(b: Expander, n: Any, d: float = 1.0, *_: Any) -> Value:
    """i / (n * d): for all of i, those from the middle on count from the end; the reciprocal is rounded first."""
    if not isinstance(n, int) or n * d == 0:
        raise b.unsupported("frequencies of nothing, or of a run-time length")
    dtype, (length,) = b.type.dtype, b.type.dims
    index = b.iota(size=length, dtype=dt.int64)
    if b.op.name == "aten.fft_fftfreq.default":
        later = b.ge(index, const(b, index, (n + 1) // 2))
        index = b.select(later, b.sub(index, const(b, index, n)), index)
    steps = b.cast(index, dtype)
    return b.mul(steps, const(b, steps, 1.0 / (n * d)))


def _arange(b: Expander, start: Any, step: Any) -> Value:
    """start + i * step, computed in int64 or float64 (eager's accumulation dtypes) and then rounded."""
    dtype, (length,) = b.type.dtype, b.type.dims
    if dtype.is_int:
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    if start == 0 and step == 1:
        return b.iota(size=length, dtype=dtype)
    fractional = any(isinstance(v, float) and not v.is_integer() for v in (start, step))
    if fractional and isinstance(length, int) and length <= LONGEST_CONSTANT:
        return _sequence(b, lambda i: start + step * i, length)
    compute = dt.float64 if fractional else dt.int64
    index = b.iota(size=length, dtype=compute)
    stepped = index if step == 1 else b.mul(index, b.broadcast(tensor(b, step, compute), index.shape, ()))
    return b.cast(b.add(stepped, b.broadcast(tensor(b, start, compute), index.shape, ())), dtype)


def _steps(b: Expander, start: Any, end: Any, at: Callable[[Any], Any], *, fused: bool = False) -> Value:
    """``at`` of evenly spaced numbers, from the nearer end, as eager computes them."""
    dtype, (length,) = b.type.dtype, b.type.dims
    if not isinstance(length, int) or length > LONGEST_CONSTANT:
        raise b.unsupported(f"more than {LONGEST_CONSTANT} steps")
    if not length:
        return _sequence(b, at, 0)
    low = convert_number(start, dtype)
    high = convert_number(end, dtype) if length > 1 else low  # which eager does not look at
    step = (high - low) / (length - 1) if length > 1 else 0.0
    step = Fraction(step) if fused and dtype.is_int and eager_fuses() else step

    def number(i: int) -> Any:
        if length == 1:
            return at(low)
        spaced = low + step * i if i < length // 2 else high - step * (length - i - 1)
        return at(float(spaced) if isinstance(spaced, Fraction) else spaced)

    return _sequence(b, number, length)


@cache
def eager_fuses() -> bool:
    """Whether eager's vectors multiply and add in one rounding here: those of AVX2 and later do."""
    import torch

    return torch.backends.cpu.get_cpu_capability() != "DEFAULT"


def _run_time_steps(b: Expander, start: Any, end: Any, *, fused: bool = False) -> Value:
    """Evenly spaced numbers between bounds known at run time; of integers in float64, as eager has their step."""
    dtype, (length,) = b.type.dtype, b.type.dims
    compute = dt.float64 if dtype.is_int else opmath(dtype)
    low, high = (b.cast(tensor(b, v, dtype), compute) for v in (start, end))
    return spaced(b, low, high, length, fused=fused and dtype.is_int)


def spaced(b: Expander, low: Value, high: Value, length: Dim, *, fused: bool) -> Value:
    """``length`` evenly spaced numbers between two 0-d ones, in their dtype, each from the nearer end.

    Eager's kernel multiplies and adds ``fused``, but for 16-bit floats and on processors without AVX2: one rounding,
    where an ULP makes a difference.
    """
    dtype = low.dtype
    low, high = (b.broadcast(v, (length,), ()) for v in (low, high))
    if length in (0, 1):
        return low
    fused = fused and not dtype.is_half and eager_fuses()
    wide = dt.float64 if fused else dtype
    index = b.iota(size=length, dtype=dt.int64)
    number = b.cast(index, wide) if wide.is_complex else b.iota(size=length, dtype=wide)
    early = b.lt(index, b.reverse(index, dims=(0,)))
    start, count = b.select(early, low, high), b.select(early, number, b.reverse(number, dims=(0,)))
    step = b.div(b.sub(high, low), b.broadcast(tensor(b, length - 1, dtype), (length,), ()))
    step = b.select(early, step, b.neg(step))
    if not fused:
        return b.add(start, b.mul(step, count))
    start, step = b.cast(start, wide), b.cast(step, wide)
    if dtype == dt.float32:  # whose product is exact in float64
        return b.cast(b.add(start, b.mul(step, count)), dtype)
    return _fused(b, start, step, count)


def _fused(b: Expander, x: Value, y: Value, z: Value) -> Value:
    """x + y * z rounded once, in float64, where z is an integer below 2**26.

    Eager truncates integer steps that a fused multiply-add gave: a rounding more, and whole numbers are missed.
    Dekker's product and Knuth's sum recover the two rounding errors.
    """
    scaled = b.mul(y, const(b, y, 2**27 + 1))
    high = b.sub(scaled, b.sub(scaled, y))
    low = b.sub(y, high)
    product = b.mul(y, z)
    product_error = b.add(b.sub(b.mul(high, z), product), b.mul(low, z))
    total = b.add(x, product)
    moved = b.sub(total, x)
    sum_error = b.add(b.sub(x, b.sub(total, moved)), b.sub(product, moved))
    return b.add(total, b.add(sum_error, product_error))


def _overloads(name: str) -> tuple[str, ...]:
    return tuple(f"aten.{name}.{o}" for o in ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"))


@expands(*_overloads("linspace"))
def linspace(b: Expander, start: Any, end: Any, steps: int, *_: Any) -> Value:
    if any(isinstance(v, Value) for v in (start, end)):
        return b.cast(_run_time_steps(b, start, end, fused=True), b.type.dtype)
    return _steps(b, start, end, lambda v: v, fused=True)


@expands(*_overloads("logspace"))
def logspace(b: Expander, start: Any, end: Any, steps: int, base: float = 10.0, *_: Any) -> Value:
    if b.type.dims == (0,):  # in any dtype, those too that there is no power in
        return b.full(convert_number(0, b.type.dtype), (0,), b.type.dtype)
    if any(isinstance(v, Value) for v in (start, end)):
        if b.type.dims == (1,):  # the only one of which eager takes the bound as it is given, in float64
            compute = dt.complex128 if b.type.dtype.is_complex else dt.float64
            exponents = b.broadcast(b.cast(tensor(b, start, compute), compute), (1,), ())
        else:
            exponents = _run_time_steps(b, start, end)
        return b.cast(b.pow(const(b, exponents, base), exponents), b.type.dtype)

    return _steps(b, start, end, functools.partial(_power, base, real=not b.type.dtype.is_complex))


def _power(base: Any, exponent: Any, *, real: bool) -> Any:
    """The power as C has it: infinite where Python raises, and no number where Python's is complex."""
    odd = real and exponent % 2 == 1
    try:
        found = base**exponent
    except (OverflowError, ZeroDivisionError):
        return -math.inf if odd and math.copysign(1.0, base) < 0 else math.inf
    return math.nan if real and isinstance(found, complex) else found


# Matrices by position.


def positions(b: Expander, shape: tuple[Any, ...]) -> tuple[Value, Value]:
    """Row and column number of each element of the last two dims, int64 of that shape."""
    rank = len(shape)
    row, column = (b.iota(size=shape[d], dtype=dt.int64) for d in (rank - 2, rank - 1))
    return b.broadcast(row, shape, (rank - 2,)), b.broadcast(column, shape, (rank - 1,))


@expands("aten.eye.default", "aten.eye.m")
def eye(b: Expander, *_: Any) -> Value:
    return b.cast(b.eq(*positions(b, b.type.dims)), b.type.dtype)


def _triangle(b: Expander, x: Value, diagonal: Any, relation: str) -> Value:
    row, column = positions(b, x.shape)
    offset = b.broadcast(tensor(b, diagonal, dt.int64), x.shape, ())
    keep = getattr(b, relation)(b.sub(column, row), offset)
    return b.select(keep, x, b.full_like(x, convert_number(0, x.dtype)))


@expands("aten.tril.default")
def tril(b: Expander, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, "le")


@expands("aten.triu.default")
def triu(b: Expander, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, "ge")


def _indices(b: Expander, rows: int, columns: int, inside: Callable[[int, int], bool]) -> Value:
    pairs = [(i, j) for i in range(rows) for j in range(columns) if inside(i, j)]
    flat = tuple(p[0] for p in pairs) + tuple(p[1] for p in pairs)
    return b.emit("constant", value=flat, shape=(2, len(pairs)), dtype=b.type.dtype)[0]


@expands("aten.tril_indices.default")
def tril_indices(b: Expander, rows: int, columns: int, offset: int = 0, *_: Any) -> Value:
    return _indices(b, rows, columns, lambda i, j: j - i <= offset)


@expands("aten.triu_indices.default")
def triu_indices(b: Expander, rows: int, columns: int, offset: int = 0, *_: Any) -> Value:
    return _indices(b, rows, columns, lambda i, j: j - i >= offset)


@expands(
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", "aten.empty_permuted.default",
)  # fmt: skip
def empty(b: Expander, *_: Any) -> Value:
    """Zeros. PyTorch promises nothing about what uninitialized memory holds, so any contents are right: a program whose
    result is defined writes the memory before it reads it.
    """
    return fill(b, 0)


@expands("aten.resize.default")
def resize(b: Expander, x: Value, *_: Any) -> Value:
    """The elements in memory order, then uninitialized ones. The order is unknown here, and matters if any is left."""
    if x.shape == b.type.dims:
        return x
    if 0 in x.shape or 0 in b.type.dims:
        return fill(b, 0)
    raise b.unsupported("the elements that stay depend on the memory layout")
