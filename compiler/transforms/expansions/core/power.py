"""pow and its relatives. Eager's special exponents: aten/src/ATen/native/cpu/PowKernel.cpp."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const, pointwise, tensor
from torchstone.compiler.transforms.promotion import result_type
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.pow.Tensor_Tensor")
def pow_tensor_tensor(b: Expander, base: Value, exponent: Value) -> Value:
    def formula(base: Value, exponent: Value) -> Value:
        return b.pow(base, exponent) if not base.dtype.is_int else _int_power(b, base, exponent)

    if b.type.dtype.is_bool:
        raise b.unsupported("bool")
    return pointwise(b, formula, base, exponent)


@expands("aten.pow.Scalar")
def pow_scalar(b: Expander, base: Any, exponent: Value) -> Value:
    """base ** exponent; a base of 1 gives 1 even for NaN, as IEEE 754 pow has it too."""
    if base == 1:
        return tensor_full(b, 1)
    common = result_type(base, exponent)
    return pow_tensor_tensor(b, tensor(b, base, common), exponent)


def tensor_full(b: Expander, value: Any) -> Value:
    return b.broadcast(tensor(b, value, b.type.dtype), b.type.dims)


@expands("aten.pow.Tensor_Scalar")
def pow_tensor_scalar(b: Expander, base: Value, exponent: Any) -> Value:
    """base ** exponent; small exponents are roots, products and quotients, so that -inf ** 0.5 is NaN as in eager."""
    if exponent == 0:
        return tensor_full(b, 1)
    if exponent == 1:
        return b.cast(base, b.type.dtype)
    if b.type.dtype.is_int:
        return pointwise(b, lambda x: constant_power(b, x, int(exponent)), base)
    return pointwise(b, lambda x: float_power(b, x, exponent), base)


def float_power(b: Expander, x: Value, exponent: Any) -> Value:
    one = const(b, x, 1)
    if exponent == 0.5:
        return b.sqrt(x)
    if exponent == -0.5:
        return b.rsqrt(x)
    if exponent == -1:
        return b.div(one, x)
    if exponent == 2:
        return b.mul(x, x)
    if exponent == 3:
        return b.mul(b.mul(x, x), x)
    if exponent == -2:
        return b.div(one, b.mul(x, x))
    return b.pow(x, const(b, x, exponent))


def constant_power(b: Expander, x: Value, exponent: int) -> Value:
    """x ** exponent (positive) by squaring; integers wrap."""
    out: Value | None = None
    while exponent:
        if exponent & 1:
            out = x if out is None else b.mul(out, x)
        exponent >>= 1
        if exponent:
            x = b.mul(x, x)
    return out if out is not None else const(b, x, 1)


def _int_power(b: Expander, base: Value, exponent: Value) -> Value:
    """base ** exponent of integers by squaring, one step a bit; a negative exponent truncates 1 / base**-exponent.

    Integers wrap, so the low bits of every power are right however large it is.
    """
    dtype = base.dtype
    zero, one = const(b, base, 0), const(b, base, 1)
    out, power = one, base
    for bit in range(dtype.bits - dtype.is_signed):
        taken = b.ne(b.and_(exponent, const(b, exponent, 1 << bit)), zero)
        out = b.select(taken, b.mul(out, power), out)
        power = b.mul(power, power)
    if not dtype.is_signed:
        return out
    odd = b.ne(b.and_(exponent, one), zero)
    minus_one = b.eq(base, const(b, base, -1))
    inverse = b.select(minus_one, b.select(odd, const(b, base, -1), one), zero)
    inverse = b.select(b.eq(base, one), one, inverse)
    return b.select(b.lt(exponent, zero), inverse, out)
