"""Reductions. Eager accumulates 16-bit floats in float32 and integers in int64: aten/src/ATen/native/ReduceOps.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.ir import DType, Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, dim_min
from torchstone.compiler.transforms.expansions.common import (
    const,
    convert_number,
    expand_dims,
    is_nan,
    keep_dims,
    ordered,
    size_value,
    tensor,
    wrap_dim,
    wrap_dims,
)
from torchstone.compiler.transforms.promotion import opmath, result_type
from torchstone.compiler.transforms.rules import Expander, expands

Dims = Sequence[int] | int | None


def count(b: Expander, x: Value, dims: Sequence[int], dtype: DType) -> Value:
    """The number of elements reduced over ``dims``, a 0-d value."""
    total: Dim = product([x.shape[d] for d in dims])
    if isinstance(total, int):
        return tensor(b, total, dtype)
    sizes = [size_value(b, x.shape[d]) for d in dims]
    out = sizes[0]
    for size in sizes[1:]:
        out = b.mul(out, size)
    return b.cast(out, dtype)


def finish(b: Expander, x: Value, index: int = 0) -> Value:
    """Cast and reshape to the type of a result of the op: ``keepdim`` is in it."""
    kind = b.op.results[index].tensor
    return b.reshape(b.cast(x, kind.dtype), kind.dims)


def reduced(b: Expander, x: Value, kind: str, dims: Sequence[int]) -> Value:
    """Reduce in the dtype given; max and min of bools are or and and. Of no results the dtype needs no order."""
    left = tuple(size for d, size in enumerate(x.shape) if d not in dims)
    if 0 in left:
        return b.full(convert_number(0, x.dtype), left, x.dtype)
    if x.dtype.is_bool and kind in ("max", "min"):
        kind = "or" if kind == "max" else "and"
    return b.reduce(x, kind, tuple(dims))


def kept(b: Expander, x: Value, source: Value, dims: Sequence[int]) -> Value:
    """A value reduced over ``dims``, repeated to the shape of ``source``."""
    return expand_dims(b, x, source.shape, dims)


# Sums, products, means.


@expands("aten.sum.default", "aten.sum.dim_IntList")
def sum_(b: Expander, x: Value, dim: Any = None, keepdim: Any = False, dtype: DType | None = None) -> Value:
    return _total(b, b.cast(x, opmath(b.type.dtype)), _dims_or_all(b, x, dim))


def _total(b: Expander, x: Value, dims: tuple[int, ...]) -> Value:
    """The sum, which of bools says whether there is a true one."""
    return finish(b, b.reduce(x, "or" if x.dtype.is_bool else "sum", dims))


def _dims_or_all(b: Expander, x: Value, dim: Any) -> tuple[int, ...]:
    """The dims of an overload that may have none: ``sum.default`` has the dtype where ``dim`` would be."""
    return tuple(range(x.rank)) if b.op.name.endswith(".default") else wrap_dims(dim, x.rank)


@expands("aten.nansum.default")
def nansum(b: Expander, x: Value, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """sum, NaN counted as 0."""
    values = x if b.type.dtype.is_bool else b.cast(x, opmath(b.type.dtype))
    if values.dtype.is_float:
        values = b.select(is_nan(b, values), const(b, values, 0), values)
    return _total(b, b.cast(values, opmath(b.type.dtype)), wrap_dims(dim, x.rank))


@expands("aten.mean.default", "aten.mean.dim")
def mean(b: Expander, x: Value, dim: Any = None, keepdim: Any = False, dtype: DType | None = None) -> Value:
    """sum / n; NaN of nothing."""
    dims = _dims_or_all(b, x, dim)
    values = b.cast(x, opmath(b.type.dtype))
    return finish(b, _mean(b, values, dims))


def _mean(b: Expander, x: Value, dims: Sequence[int]) -> Value:
    total = b.reduce(x, "sum", tuple(dims))
    return b.div(total, b.broadcast(count(b, x, dims, x.dtype), total.shape, ()))


@expands("aten.prod.default", "aten.prod.dim_int")
def prod(b: Expander, x: Value, dim: Any = None, keepdim: Any = False, dtype: DType | None = None) -> Value:
    dims = _dims_or_all(b, x, dim)
    kind = "and" if b.type.dtype.is_bool else "prod"
    return finish(b, b.reduce(b.cast(x, opmath(b.type.dtype)), kind, dims))


@expands("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(b: Expander, x: Value, dim: Dims = None) -> Value:
    hits = b.cast(b.cast(x, dt.boolean), dt.int64)
    return finish(b, b.reduce(hits, "sum", wrap_dims(dim, x.rank)))


# Truth.


def _truth(b: Expander, x: Value, kind: str, dim: Any) -> Value:
    """all or any; no dims at all (``dim=[]`` of the ``dims`` overloads) reduce nothing."""
    truth = b.cast(x, dt.boolean)
    none = b.op.name.endswith(".dims") and dim == ()
    return finish(b, b.reduce(truth, kind, () if none else _dims_or_all(b, x, dim)))


@expands("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(b: Expander, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _truth(b, x, "and", dim)


@expands("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(b: Expander, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _truth(b, x, "or", dim)


# Extremes.


@expands("aten.amax.default")
def amax(b: Expander, x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return finish(b, reduced(b, x, "max", wrap_dims(dim, x.rank)))


@expands("aten.amin.default")
def amin(b: Expander, x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return finish(b, reduced(b, x, "min", wrap_dims(dim, x.rank)))


@expands("aten.max.default")
def max_(b: Expander, x: Value) -> Value:
    return amax(b, x)


@expands("aten.min.default")
def min_(b: Expander, x: Value) -> Value:
    return amin(b, x)


@expands("aten.aminmax.default")
def aminmax(b: Expander, x: Value, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    dims = wrap_dims(dim, x.rank)
    return finish(b, reduced(b, x, "min", dims)), finish(b, reduced(b, x, "max", dims), 1)


def _arg(b: Expander, x: Value, kind: str, dim: int | None) -> Value:
    """The index of the first extreme, the first NaN before all, along a dim or in the flattened tensor."""
    x = b.cast(x, ordered(x))
    if dim is None:
        x, dim = b.reshape(x, (product(x.shape),)), 0
    if not x.rank:
        return b.scalar(0, dt.int64)
    return b.arg_reduce(x, kind=kind, dim=wrap_dim(dim, x.rank))


@expands("aten.argmax.default")
def argmax(b: Expander, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return finish(b, _arg(b, x, "argmax", dim))


@expands("aten.argmin.default")
def argmin(b: Expander, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return finish(b, _arg(b, x, "argmin", dim))


def _extreme_with_index(b: Expander, x: Value, kind: str, dim: int) -> tuple[Value, Value]:
    if 0 in x.shape:
        return finish(b, b.full(convert_zero(x), b.type.dims, x.dtype)), finish(b, b.full(0, b.type.dims, dt.int64), 1)
    value = reduced(b, x, kind, wrap_dims(dim, x.rank))
    return finish(b, value), finish(b, _arg(b, x, f"arg{kind}", dim), 1)


def convert_zero(x: Value) -> Any:
    return False if x.dtype.is_bool else 0 if x.dtype.is_int else 0.0


@expands("aten.max.dim")
def max_dim(b: Expander, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme_with_index(b, x, "max", dim)


@expands("aten.min.dim")
def min_dim(b: Expander, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme_with_index(b, x, "min", dim)


# Spread: two passes, in eager's accumulation dtype.


def variance(b: Expander, x: Value, dims: Sequence[int], correction: Any) -> tuple[Value, Value]:
    """sum((x - mean)**2) / max(n - correction, 0), and the mean, in float32 for 16-bit floats."""
    x = b.cast(x, opmath(x.dtype))
    average = _mean(b, x, dims)
    centered = b.sub(x, kept(b, average, x, dims))
    squares = _squared_size(b, centered)
    total = b.reduce(squares, "sum", tuple(dims))
    correction = 1 if correction is None else correction
    known = product([x.shape[d] for d in dims])
    if isinstance(known, int) and known > 0 and math.isfinite(correction):
        return b.div(total, const(b, total, max(known - correction, 0))), average
    n = count(b, x, dims, total.dtype)
    freedom = b.max(b.sub(n, const(b, n, correction)), const(b, n, 0))
    if correction < 0:  # of nothing it is NaN, whatever the correction makes of 0
        freedom = b.select(b.eq(n, const(b, n, 0)), const(b, n, math.nan), freedom)
    return b.div(total, b.broadcast(freedom, total.shape, ())), average


def _squared_size(b: Expander, x: Value) -> Value:
    """x * x; of a complex number, of its modulus."""
    if not x.dtype.is_complex:
        return b.mul(x, x)
    real, imag = b.real(x), b.imag(x)
    return b.add(b.mul(real, real), b.mul(imag, imag))


def _squared_modulus(b: Expander, x: Value) -> Value:
    """The square of the modulus, which is infinite where one part is, whatever the other (C99, annex G)."""
    squares = _squared_size(b, x)
    if not x.dtype.is_complex:
        return squares
    real, imag = (b.eq(b.abs(part(x)), const(b, squares, math.inf)) for part in (b.real, b.imag))
    return b.select(b.or_(real, imag), const(b, squares, math.inf), squares)


def _spread(b: Expander, x: Value, dims: Sequence[int], correction: Any) -> tuple[Value, Value, Value]:
    """Variance, standard deviation and mean of ``var`` and its like, of a complex number part by part.

    Eager adds up the squares of float32, and of bfloat16 with its range, where they cannot leave it: in float64, which
    not every target has. Here a power of two takes the numbers there, where the largest is not of ordinary size.
    """
    if x.dtype.is_complex:
        (real, _, left), (imag, _, right) = (_spread(b, part(x), dims, correction) for part in (b.real, b.imag))
        both = b.add(real, imag)
        return both, b.sqrt(both), b.complex(left, right)
    x = b.cast(x, opmath(x.dtype))
    if x.dtype != dt.float32 or not dims or any(x.shape[d] == 0 for d in dims):
        squared, average = variance(b, x, dims, correction)
        return squared, b.sqrt(squared), average
    peak = b.reduce(b.abs(x), "max", tuple(dims))
    large, small = b.lt(const(b, peak, 2.0**60), peak), b.lt(peak, const(b, peak, 2.0**-40))

    def power(down: float, up: float) -> Value:
        return b.select(large, const(b, peak, down), b.select(small, const(b, peak, up), const(b, peak, 1)))

    scale, back = power(2.0**-96, 2.0**80), power(2.0**96, 2.0**-80)
    squared, average = variance(b, b.mul(x, kept(b, scale, x, dims)), dims, correction)
    return b.mul(b.mul(squared, back), back), b.mul(b.sqrt(squared), back), b.mul(average, back)


@expands("aten.var.correction")
def var(b: Expander, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> Value:
    return finish(b, _spread(b, x, wrap_dims(dim, x.rank), correction)[0])


@expands("aten.std.correction")
def std(b: Expander, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> Value:
    return finish(b, _spread(b, x, wrap_dims(dim, x.rank), correction)[1])


@expands("aten.var_mean.correction")
def var_mean(
    b: Expander, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    squared, _, average = _spread(b, x, wrap_dims(dim, x.rank), correction)
    return finish(b, squared), finish(b, average, 1)


@expands("aten.std_mean.correction")
def std_mean(
    b: Expander, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    _, root, average = _spread(b, x, wrap_dims(dim, x.rank), correction)
    return finish(b, root), finish(b, average, 1)


# Norms.


def norm(b: Expander, x: Value, order: float, dims: Sequence[int], of_one: bool = True) -> Value:
    """The order-norm over dims, in the dtype of ``x``, which is real or complex float; eager's special orders.

    ``of_one``: whether that of one element is its size. Its powers may be out of range.
    """
    size = b.abs(x)
    if of_one and order and all(x.shape[d] == 1 for d in dims):
        return b.reduce(size, "sum", tuple(dims))
    if order == math.inf or order == -math.inf:
        return b.reduce(size, "max" if order > 0 else "min", tuple(dims))
    if order == 0:
        return b.reduce(b.cast(b.ne(x, const(b, x, 0)), size.dtype), "sum", tuple(dims))
    if order == 1:
        return b.reduce(size, "sum", tuple(dims))
    if order == 2:
        return b.sqrt(b.reduce(_squared_modulus(b, x), "sum", tuple(dims)))
    total = b.reduce(b.pow(size, const(b, size, order)), "sum", tuple(dims))
    out = b.pow(total, const(b, total, 1.0 / order))
    if not math.isnan(order):
        return out
    number = b.broadcast(count(b, x, dims, out.dtype), out.shape, ())
    return b.select(b.eq(number, const(b, out, 0)), const(b, out, 0), out)  # of nothing it is 0, whatever the order


def _norm_dtype(b: Expander, x: Value, dtype: DType | None) -> DType:
    source = dtype or x.dtype
    return opmath(source if source.is_float or source.is_complex else dt.float32)


@expands("aten.linalg_vector_norm.default")
def vector_norm(
    b: Expander, x: Value, order: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    values = b.cast(x, _norm_dtype(b, x, dtype))
    dims = wrap_dims(dim, x.rank)
    of_one = x.rank > 0 or not dim  # where a dim of a 0-d tensor is named, eager computes its power
    return finish(b, norm(b, values, float(order), dims, of_one))


@expands("aten.norm.Scalar", "aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dtype", "aten.norm.ScalarOpt_dim_dtype")
def norm_op(b: Expander, x: Value, order: Any = 2, *arguments: Any) -> Value:
    overload = b.op.name.rsplit(".", 1)[-1]
    dim = arguments[0] if "_dim" in overload else None
    dtype = arguments[-1] if overload.endswith("dtype") else None
    return vector_norm(b, x, 2 if order is None else order, dim, False, dtype)


@expands("aten.dist.default")
def dist(b: Expander, x: Value, y: Value, p: Any = 2) -> Value:
    dtype = opmath(result_type(x, y))
    shape = broadcast_shape(x, y)
    x, y = (b.broadcast(b.cast(v, dtype), shape) for v in (x, y))
    gap = b.sub(x, y)
    return finish(b, norm(b, gap, float(p), range(gap.rank)))


def broadcast_shape(*values: Value) -> tuple[Dim, ...]:
    rank = max(v.rank for v in values)
    shapes = ((*(1,) * (rank - v.rank), *v.shape) for v in values)
    return tuple(next((s for s in sizes if s != 1), 1) for sizes in zip(*shapes, strict=True))


@expands("aten.logsumexp.default")
def logsumexp(b: Expander, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    """log(sum(e**(x - max))) + max, infinite maxima taken as 0 in the subtraction."""
    dims = wrap_dims(dim, x.rank)
    return finish(b, log_sum_exp(b, b.cast(x, opmath(b.type.dtype)), dims))


def log_sum_exp(b: Expander, x: Value, dims: Sequence[int]) -> Value:
    """The maximum of complex numbers is that of their real parts; the logarithm of one alone is principal too."""
    if any(x.shape[d] == 0 for d in dims):
        return b.log(b.reduce(b.exp(x), "sum", tuple(dims)))
    if not dims and not x.dtype.is_complex:
        return x
    peak = b.reduce(b.real(x) if x.dtype.is_complex else x, "max", tuple(dims))
    finite = b.select(b.eq(b.abs(peak), const(b, peak, math.inf)), const(b, peak, 0), peak)
    finite = b.cast(finite, x.dtype)
    total = b.reduce(b.exp(b.sub(x, kept(b, finite, x, dims))), "sum", tuple(dims))
    return b.add(b.log(total), finite)


@expands("aten.trace.default")
def trace(b: Expander, x: Value) -> Value:
    """The sum of the diagonal."""
    rows, columns = x.shape
    k = dim_min(rows, columns)
    if isinstance(k, int):
        square = b.slice(b.slice(x, 0, 0, k), 1, 0, k)
        flat = b.reshape(square, (k * k,))
        flat = b.slice(flat, 0, 0, k * k, k + 1) if k else flat
    else:
        step = b.iota(size=k, dtype=dt.int64)
        flat = b.gather(x, step, step, dims=(0, 1))
    return finish(b, b.reduce(b.cast(flat, opmath(b.type.dtype)), "sum", (0,)))


def with_keepdim(b: Expander, reduce: Callable[[Value], Value], x: Value, dims: Sequence[int]) -> Value:
    """``reduce(x)`` with size 1 at ``dims``."""
    return b.reshape(reduce(x), keep_dims(x.shape, dims))
