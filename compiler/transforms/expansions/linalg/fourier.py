"""Discrete Fourier transforms as one contraction a dim, with a matrix of roots of unity, in float64.

Quadratic in the length, and nearer to the exact transform than a float32 FFT: a library call is what long ones want.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, tensor, wrap_dim
from torchstone.compiler.transforms.rules import Expander, expands

LONGEST = 4096


def _length(b: Expander, size: Dim) -> Dim:
    """The length of a transform: not none, as eager says too, and not too long for this way of doing it."""
    if isinstance(size, int):
        if size > LONGEST:
            raise b.unsupported(f"a transform of {size} elements, longer than {LONGEST}")
        return size
    b.emit("require", left=1, right=size, relation="le")
    b.emit("require", left=size, right=LONGEST, relation="le")
    return size


def _filled(b: Expander, like: Value, size: Dim) -> Value:
    """A size with the shape and dtype of ``like``."""
    return const(b, like, size) if isinstance(size, int) else b.broadcast(tensor(b, size, like.dtype), like.shape)


def _roots(b: Expander, rows: Dim, columns: Dim, length: Dim) -> tuple[Value, Value]:
    """Cosine and sine of 2 pi row * column / length, float64.

    The turn is an integer until only its distance from the nearest quarter is left: 0, 1 and -1 are exact, and a sum
    that vanishes for them does.
    """
    shape = (rows, columns)
    row = b.broadcast(b.iota(size=rows, dtype=dt.int64), shape, (0,))
    column = b.broadcast(b.iota(size=columns, dtype=dt.int64), shape, (1,))
    whole, double = _filled(b, row, length), _filled(b, row, 2 * length)
    quarters = b.mul(const(b, row, 4), b.rem(b.mul(row, column), whole))
    quarter = b.div(b.add(b.add(quarters, quarters), whole), double)
    rest = b.cast(b.sub(quarters, b.mul(quarter, whole)), dt.float64)
    angle = b.mul(rest, b.div(const(b, rest, math.pi), b.cast(double, dt.float64)))
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


def _transform(b: Expander, x: Value, dim: int, size: Dim, *, forward: bool) -> Value:
    """The sum over k of x[k] e**(-+ 2 pi i j k / n) for the first ``size`` j; complex128."""
    length = _length(b, x.shape[dim])
    cosine, sine = _roots(b, length, size, length)
    return _along(b, x, b.complex(cosine, b.neg(sine) if forward else sine), dim)


def _real_transform(b: Expander, x: Value, dim: int, size: Dim) -> Value:
    """The forward transform of float64 numbers."""
    length = _length(b, x.shape[dim])
    cosine, sine = _roots(b, length, size, length)
    return b.complex(_along(b, x, cosine, dim), _no_imag(b, _along(b, x, b.neg(sine), dim), dim, length))


def _own_conjugates(b: Expander, size: Dim, length: Dim) -> Value:
    """Which of the first coefficients are their own conjugates where the signal is real: the first, and the middle one
    of an even length."""
    index = b.iota(size=size, dtype=dt.int64)
    twice = b.add(index, index)
    return b.or_(b.eq(index, const(b, index, 0)), b.eq(twice, _filled(b, index, length)))


def _no_imag(b: Expander, x: Value, dim: int, length: Dim) -> Value:
    """Imaginary parts, 0 where a real signal has none: neither written nor read by eager, be it NaN."""
    mask = _own_conjugates(b, x.shape[dim], length)
    return b.select(b.broadcast(mask, x.shape, (dim,)), const(b, x, 0), x)


def _finish(b: Expander, x: Value, norm: int, count: Dim) -> Value:
    """Scale by fft_norm_mode: by none, by the root of n, by n."""
    if norm:
        divisor = tensor(b, count, dt.float64)
        scale = b.div(b.scalar(1.0, dt.float64), b.sqrt(divisor) if norm == 1 else divisor)
        x = b.mul(x, b.broadcast(b.cast(scale, x.dtype), x.shape))
    return b.cast(x, b.type.dtype)


@expands("aten._fft_c2c.default")
def c2c(b: Expander, x: Value, dims: Sequence[int], norm: int, forward: bool) -> Value:
    x = b.cast(x, dt.complex128)
    count: Dim = 1
    for dim in (wrap_dim(d, x.rank) for d in dims):
        count = count * x.shape[dim]
        x = _transform(b, x, dim, x.shape[dim], forward=forward)
    return _finish(b, x, norm, count)


@expands("aten._fft_r2c.default")
def r2c(b: Expander, x: Value, dims: Sequence[int], norm: int, onesided: bool) -> Value:
    """Of real numbers; of the last dim only the first n // 2 + 1 when one-sided."""
    *others, last = (wrap_dim(d, x.rank) for d in dims)
    count = x.shape[last]
    x = _real_transform(b, b.cast(x, dt.float64), last, b.type.dims[last])
    for dim in others:
        count = count * x.shape[dim]
        x = _transform(b, x, dim, x.shape[dim], forward=True)
    return _finish(b, x, norm, count)


@expands("aten._fft_c2r.default")
def c2r(b: Expander, x: Value, dims: Sequence[int], norm: int, last_dim_size: Dim) -> Value:
    """The inverse of the one-sided transform: the half that is missing is the conjugate of the half that is there."""
    x = b.cast(x, dt.complex128)
    *others, last = (wrap_dim(d, x.rank) for d in dims)
    length = _length(b, last_dim_size)
    count = length
    for dim in others:
        count = count * x.shape[dim]
        x = _transform(b, x, dim, x.shape[dim], forward=False)
    there = length // 2 + 1
    x = b.slice(x, last, 0, there)
    cosine, sine = _roots(b, there, length, length)
    # Each that is not its own conjugate stands for that too.
    own = b.broadcast(_own_conjugates(b, there, length), cosine.shape, (0,))
    weight = b.select(own, const(b, cosine, 1), const(b, cosine, 2))
    real = _along(b, b.real(x), b.mul(weight, cosine), last)
    imag = _along(b, _no_imag(b, b.imag(x), last, length), b.mul(weight, sine), last)
    return _finish(b, b.sub(real, imag), norm, count)
