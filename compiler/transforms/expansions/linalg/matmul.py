"""Matrix products: one contraction each. 16-bit floats accumulate in float32 and round once, bias included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, convert_number
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


def contract(b: Expander, x: Value, y: Value, sums: tuple[Sequence[int], Sequence[int]], batch: int = 0) -> Value:
    """Sum of products over ``sums``; the first ``batch`` dims pair up. Bools multiply as and, add as or."""
    lead = tuple(range(batch))
    return b.contract(x, y, a_batch=lead, b_batch=lead, a_sum=tuple(sums[0]), b_sum=tuple(sums[1]))


def _product(b: Expander, x: Value, y: Value, batch: int = 0) -> Value:
    """Matrix product of the last two dims (a vector has one), of the same dtype."""
    if x.dtype.is_bool:
        raise b.unsupported("bool")
    return contract(b, x, y, ((x.rank - 1,), (batch,)), batch)


@expands("aten.mm.default", "aten.mv.default", "aten.dot.default", "aten.bmm.default")
def mm(b: Expander, x: Value, y: Value) -> Value:
    if 0 in (*b.type.dims, x.shape[-1]):  # of nothing, eager takes two dtypes
        return b.full(convert_number(0, b.type.dtype), b.type.dims, b.type.dtype)
    return _product(b, x, y, 1 if b.op.name == "aten.bmm.default" else 0)


@expands("aten.vdot.default")
def vdot(b: Expander, x: Value, y: Value) -> Value:
    """dot of the conjugate of x."""
    if x.dtype.is_complex:
        x = b.complex(b.real(x), b.neg(b.imag(x)))
    return _product(b, x, y)


def _blend(b: Expander, bias: Value, product: Value, beta: Any, alpha: Any) -> Value:
    """beta * bias + alpha * product; a beta of 0 ignores even NaN in the bias. Of a result without numbers eager does
    not look at either, which may be none of its dtype."""
    if 0 in b.type.dims:
        return b.full(convert_number(0, b.type.dtype), b.type.dims, b.type.dtype)
    if alpha != 1:
        product = b.mul(product, const(b, product, alpha))
    if beta != 0:
        bias = b.broadcast(b.cast(bias, product.dtype), product.shape)
        product = b.add(bias if beta == 1 else b.mul(bias, const(b, bias, beta)), product)
    return b.cast(product, b.type.dtype)


def _wide(b: Expander, *values: Value) -> tuple[Value, ...]:
    """16-bit floats as float32, so that the product is not rounded before the bias is added."""
    return tuple(b.cast(v, opmath(b.type.dtype)) for v in values)


@expands("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default")
def addmm(b: Expander, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if b.op.name == "aten.addmv.default" and x.shape[0] == 0:
        # PyTorch forgets the product of no rows: the result has the shape of the bias.
        return _blend(b, bias, b.full(0, b.type.dims, b.type.dtype), beta, 1)
    alpha = 1 if x.shape[-1] == 0 else alpha  # of no products the sum is 0, even times NaN
    x, y = _wide(b, x, y)
    return _blend(b, bias, _product(b, x, y, 1 if b.op.name == "aten.baddbmm.default" else 0), beta, alpha)


@expands("aten.addbmm.default")
def addbmm(b: Expander, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """The products of the batch summed."""
    alpha = 1 if 0 in (x.shape[0], x.shape[2]) else alpha
    x, y = _wide(b, x, y)
    return _blend(b, bias, contract(b, x, y, ((0, 2), (0, 1))), beta, alpha)


@expands("aten.addr.default")
def addr(b: Expander, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """Outer product of two vectors."""
    shape = b.type.dims
    if b.type.dtype.is_bool:
        x, y, bias = (b.broadcast(v, shape, dims) for v, dims in ((x, (0,)), (y, (1,)), (bias, None)))
        outer = b.and_(x, y) if alpha else b.full(False, shape, x.dtype)
        return b.or_(bias, outer) if beta else outer
    x, y = _wide(b, x, y)
    outer = b.mul(b.broadcast(x, shape, (0,)), b.broadcast(y, shape, (1,)))
    return _blend(b, bias, outer, beta, alpha)


@expands("aten._trilinear.default")
def trilinear(
    b: Expander, x: Value, y: Value, z: Value, expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int],
    sumdim: Sequence[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """The product of three tensors, each given size-1 dims, summed over dims."""
    expanded = (_wide(b, x, y, z), (expand1, expand2, expand3))
    shaped: list[Value] = []
    for value, dims in zip(*expanded, strict=True):
        sizes = iter(value.shape)
        rank = value.rank + len(dims)
        shaped.append(b.reshape(value, tuple(1 if d in dims else next(sizes) for d in range(rank))))
    full = tuple(max(sizes, key=lambda s: s != 1) for sizes in zip(*(v.shape for v in shaped), strict=True))
    first, second, third = (b.broadcast(v, full) for v in shaped)
    total = b.reduce(b.mul(b.mul(first, second), third), "sum", tuple(sumdim))
    return b.cast(total, b.type.dtype)


@expands("aten._scaled_mm.default")
def scaled_mm(
    b: Expander, x: Value, y: Value, scale_x: Value, scale_y: Value, bias: Value | None = None,
    scale_result: Value | None = None, out_dtype: Any = None, use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """Float8 by float8, added up in float32, each times its scale: one number, or one for each row of x, column of y.

    Only a result of the two float8 of OCP is divided by its scale, and only if its dtype is named: so does eager.
    """

    def scaled(value: Value, scale: Value) -> Value:
        scale = b.reshape(scale, ()) if all(size == 1 for size in scale.shape) else scale
        return b.mul(b.cast(value, dt.float32), b.broadcast(b.cast(scale, dt.float32), value.shape))

    out = _product(b, scaled(x, scale_x), scaled(y, scale_y))
    if bias is not None:
        out = b.add(out, b.broadcast(b.cast(bias, dt.float32), out.shape, (1,)))
    divided = out_dtype is not None and b.type.dtype.name in ("float8_e4m3fn", "float8_e5m2")
    if scale_result is not None and divided:
        out = b.div(out, b.broadcast(b.reshape(scale_result, ()), out.shape))
    return b.cast(out, b.type.dtype)


@expands("aten._int_mm.default")
def int_mm(b: Expander, x: Value, y: Value) -> Value:
    """int8 by int8, added up in int32."""
    return _product(b, b.cast(x, dt.int32), b.cast(y, dt.int32))
