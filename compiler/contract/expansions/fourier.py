"""Discrete Fourier transforms as one contraction a dim, with a matrix of roots of unity, in float64.

Quadratic in the length, and nearer to the exact transform than a float32 FFT: a library call is what long ones want.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.compiler.contract.expansions.common import const, wrap_dim
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt

LONGEST = 4096


def _length(b: Expander, size: object) -> int:
    if not isinstance(size, int):
        raise b.unsupported("a run-time length")
    if size > LONGEST:
        raise b.unsupported(f"a transform of {size} elements, longer than {LONGEST}")
    return size


def _roots(b: Expander, rows: int, columns: int, length: int) -> tuple[Value, Value]:
    """Cosine and sine of 2 pi row * column / length, float64.

    The turn is an integer until only its distance from the nearest quarter is left: 0, 1 and -1 are exact, and a sum
    that vanishes for them does.
    """
    shape = (rows, columns)
    row = b.broadcast(b.iota(size=rows, dtype=dt.int64), shape, (0,))
    column = b.broadcast(b.iota(size=columns, dtype=dt.int64), shape, (1,))
    whole = const(b, row, length)
    quarters = b.mul(const(b, row, 4), b.rem(b.mul(row, column), whole))
    quarter = b.div(b.add(b.add(quarters, quarters), whole), const(b, row, 2 * length))
    rest = b.cast(b.sub(quarters, b.mul(quarter, whole)), dt.float64)
    angle = b.mul(rest, const(b, rest, math.pi / (2 * length)))
    cosine, sine = b.cos(angle), b.sin(angle)
    # A quarter on: (c, s) -> (-s, c); half a turn on: both negated.
    crosswise = b.ne(b.and_(quarter, const(b, row, 1)), const(b, row, 0))
    opposite = b.ne(b.and_(quarter, const(b, row, 2)), const(b, row, 0))
    cosine, sine = b.select(crosswise, b.neg(sine), cosine), b.select(crosswise, cosine, sine)
    return b.select(opposite, b.neg(cosine), cosine), b.select(opposite, b.neg(sine), sine)


def _along(b: Expander, x: Value, matrix: Value, dim: int) -> Value:
    """Multiply ``dim`` of x by a [size, new size] matrix."""
    out = b.contract(x, matrix, a_batch=(), b_batch=(), a_sum=(dim,), b_sum=(0,))
    order = [*range(out.rank - 1)]
    order.insert(dim, out.rank - 1)
    return b.transpose(out, tuple(order))


def _transform(b: Expander, x: Value, dim: int, size: int, *, forward: bool) -> Value:
    """The sum over k of x[k] e**(-+ 2 pi i j k / n) for the first ``size`` j; complex128."""
    length = _length(b, x.shape[dim])
    cosine, sine = _roots(b, length, size, length)
    return _along(b, x, b.complex(cosine, b.neg(sine) if forward else sine), dim)


def _real_transform(b: Expander, x: Value, dim: int, size: int) -> Value:
    """The forward transform of float64 numbers."""
    length = _length(b, x.shape[dim])
    cosine, sine = _roots(b, length, size, length)
    return b.complex(_along(b, x, cosine, dim), _no_imag(b, _along(b, x, b.neg(sine), dim), dim, length))


def _middle(length: int) -> tuple[int, ...]:
    """The coefficients that are their own conjugates where the signal is real."""
    return (0, length // 2) if length % 2 == 0 else (0,)


def _no_imag(b: Expander, x: Value, dim: int, length: int) -> Value:
    """Imaginary parts, 0 where a real signal has none: neither written nor read by eager, be it NaN."""
    size = _length(b, x.shape[dim])
    real = tuple(k in _middle(length) for k in range(size))
    mask = b.emit("constant", value=real, shape=(size,), dtype=dt.boolean)[0]
    return b.select(b.broadcast(mask, x.shape, (dim,)), const(b, x, 0), x)


def _scale(norm: int, count: int) -> float:
    """fft_norm_mode: none, by the root of n, by n."""
    return (1.0, 1 / math.sqrt(count), 1 / count)[norm]


def _finish(b: Expander, x: Value, norm: int, count: int) -> Value:
    if norm:
        scale = _scale(norm, count)
        x = b.mul(x, const(b, x, scale))
    return b.cast(x, b.type.dtype)


@expands("aten._fft_c2c.default")
def c2c(b: Expander, x: Value, dims: Sequence[int], norm: int, forward: bool) -> Value:
    x = b.cast(x, dt.complex128)
    count = 1
    for dim in (wrap_dim(d, x.rank) for d in dims):
        count *= _length(b, x.shape[dim])
        x = _transform(b, x, dim, _length(b, x.shape[dim]), forward=forward)
    return _finish(b, x, norm, count)


@expands("aten._fft_r2c.default")
def r2c(b: Expander, x: Value, dims: Sequence[int], norm: int, onesided: bool) -> Value:
    """Of real numbers; of the last dim only the first n // 2 + 1 when one-sided."""
    *others, last = (wrap_dim(d, x.rank) for d in dims)
    count = _length(b, x.shape[last])
    x = _real_transform(b, b.cast(x, dt.float64), last, _length(b, b.type.dims[last]))
    for dim in others:
        count *= _length(b, x.shape[dim])
        x = _transform(b, x, dim, _length(b, x.shape[dim]), forward=True)
    return _finish(b, x, norm, count)


@expands("aten._fft_c2r.default")
def c2r(b: Expander, x: Value, dims: Sequence[int], norm: int, last_dim_size: int) -> Value:
    """The inverse of the one-sided transform: the half that is missing is the conjugate of the half that is there."""
    x = b.cast(x, dt.complex128)
    *others, last = (wrap_dim(d, x.rank) for d in dims)
    length = _length(b, last_dim_size)
    count = length
    for dim in others:
        count *= _length(b, x.shape[dim])
        x = _transform(b, x, dim, _length(b, x.shape[dim]), forward=False)
    there = length // 2 + 1
    x = b.slice(x, last, 0, there)
    cosine, sine = _roots(b, there, length, length)
    # Each but the first, and the middle one of an even length, stands for its conjugate too.
    twice = tuple(1.0 if k in _middle(length) else 2.0 for k in range(there))
    twice = b.emit("constant", value=twice, shape=(there,), dtype=dt.float64)[0]
    weight = b.broadcast(twice, cosine.shape, (0,))
    real = _along(b, b.real(x), b.mul(weight, cosine), last)
    imag = _along(b, _no_imag(b, b.imag(x), last, length), b.mul(weight, sine), last)
    return _finish(b, b.sub(real, imag), norm, count)
