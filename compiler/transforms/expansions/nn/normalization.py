"""softmax, layer, group and batch norm: computed in eager's opmath dtype, rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.compiler.ir import DType, Value, product
from torchstone.compiler.ir.dims import Dim, floordiv
from torchstone.compiler.transforms.expansions.common import const, expand_dims, wrap_dim
from torchstone.compiler.transforms.expansions.core.reduction import count, finish, kept, variance
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


def _shifted(b: Expander, x: Value, dim: int) -> Value:
    """x - max(x) along dim, in the compute dtype."""
    x = b.cast(x, opmath(b.type.dtype))
    return b.sub(x, kept(b, b.reduce(x, "max", (dim,)), x, (dim,)))


def _weights(b: Expander, x: Value, dim: int) -> Value:
    """The softmax along dim, in the compute dtype."""
    (out,) = b.emit("softmax", b.cast(x, opmath(b.type.dtype)), dim=dim)
    return out


@expands("aten._softmax.default")
def softmax(b: Expander, x: Value, dim: int, half_to_float: bool = False) -> Value:
    """e**(x - max) / sum(e**(x - max))."""
    if not x.rank:
        return _softmax_of_one(b, x, 1.0)
    dim = wrap_dim(dim, x.rank)
    if 0 in x.shape:
        return b.cast(x, b.type.dtype)
    return finish(b, _weights(b, x, dim))


@expands("aten._log_softmax.default")
def log_softmax(b: Expander, x: Value, dim: int, half_to_float: bool = False) -> Value:
    """x - max - log(sum(e**(x - max)))."""
    if not x.rank:
        return _softmax_of_one(b, x, 0.0)
    dim = wrap_dim(dim, x.rank)
    if 0 in x.shape:
        return b.cast(x, b.type.dtype)
    shifted = _shifted(b, x, dim)
    total = b.log(b.reduce(b.exp(shifted), "sum", (dim,)))
    return finish(b, b.sub(shifted, kept(b, total, x, (dim,))))


def _softmax_of_one(b: Expander, x: Value, value: float) -> Value:
    """A number alone: ``value``, but NaN for NaN and infinities, as x - x is."""
    x = b.cast(x, opmath(b.type.dtype))
    return finish(b, b.add(b.sub(x, x), const(b, x, value)))


@expands("aten._safe_softmax.default")
def safe_softmax(b: Expander, x: Value, dim: int, dtype: DType | None = None) -> Value:
    """softmax, but rows of nothing but -inf give 0."""
    if not x.rank or 0 in x.shape:
        raise b.unsupported("0-d and empty tensors")
    dim = wrap_dim(dim, x.rank)
    out = _weights(b, x, dim)
    masked = b.reduce(b.eq(x, const(b, x, -math.inf)), "and", (dim,))
    return finish(b, b.select(kept(b, masked, x, (dim,)), const(b, out, 0), out))


def _normalize(b: Expander, x: Value, dims: Sequence[int], eps: float, *affine: Value) -> tuple[Value, Value, Value]:
    """(x - mean) * rstd over dims, times a weight and plus a bias; and mean and rstd = 1 / sqrt(var + eps), reduced.

    The mean of no elements is 0, and their rstd NaN.
    """
    (out,) = b.emit("normalize", x, *affine, dims=tuple(dims), eps=eps)
    spread, average = variance(b, x, dims, 0)
    known = product([x.shape[d] for d in dims])
    if not isinstance(known, int) or known == 0:
        n = b.broadcast(count(b, x, dims, average.dtype), average.shape, ())
        average = b.select(b.eq(n, const(b, n, 0)), const(b, n, 0), average)
    return out, average, b.rsqrt(b.add(spread, const(b, spread, eps)))


def _affine(b: Expander, x: Value, weight: Value | None, bias: Value | None, dims: tuple[int, ...]) -> Value:
    """x * weight + bias, whose dims are ``dims`` of x."""
    for param, op in ((weight, b.mul), (bias, b.add)):
        if param is not None:
            x = op(x, b.broadcast(b.cast(param, x.dtype), x.shape, dims))
    return x


def _result(b: Expander, x: Value, index: int) -> Value:
    """A statistic as the op's result of this index; eager may give it the shape [0] where it has no use for it."""
    kind = b.op.results[index].tensor
    return b.full(0.0, kind.dims, kind.dtype) if kind.dims == (0,) else finish(b, x, index)


@expands("aten.native_layer_norm.default")
def layer_norm(
    b: Expander, x: Value, shape: tuple[Dim, ...], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    dims = tuple(range(x.rank - len(shape), x.rank))
    values = b.cast(x, opmath(x.dtype))
    affine = [b.cast(param, values.dtype) for param in (weight, bias) if param is not None and weight is not None]
    out, average, rstd = _normalize(b, values, dims, eps, *affine)
    if weight is None:
        out = _affine(b, out, None, bias, dims)
    return finish(b, out), finish(b, average, 1), finish(b, rstd, 2)


@expands("aten.native_group_norm.default")
def group_norm(
    b: Expander, x: Value, weight: Value | None, bias: Value | None, batch: Dim, channels: Dim, size: Dim, groups: int,
    eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """Each group of channels normalized over its channels and positions. x may have any shape of as many elements."""
    if isinstance(size, int) and size < 0:
        raise b.unsupported(f"groups of {size} positions")  # eager takes them for an input without elements
    values = b.cast(x, opmath(x.dtype))
    grouped = b.reshape(values, (batch, groups, floordiv(channels, groups) * size))
    out, average, rstd = _normalize(b, grouped, (2,), eps)
    out = _affine(b, b.reshape(out, (batch, channels, size)), weight, bias, (1,))
    return finish(b, b.reshape(out, x.shape)), finish(b, average, 1), finish(b, rstd, 2)


def _batch_norm(
    b: Expander, x: Value, weight: Value | None, bias: Value | None, running: tuple[Value | None, Value | None],
    training: bool, momentum: float, eps: float,
) -> tuple[Value, Value, Value, list[Value]]:  # fmt: skip
    """The normalized value, the batch's mean and rstd, and the updated running statistics, in the compute dtype."""
    sizes = {v.shape[0] for v in (weight, bias, *running) if v is not None} | {x.shape[1]}
    if len([size for size in sizes if isinstance(size, int)]) > 1:
        raise b.unsupported("statistics or parameters of another size than the channels, past whose end eager reads")
    values = b.cast(x, opmath(x.dtype))
    dims = tuple(d for d in range(x.rank) if d != 1)
    updated: list[Value] = []
    if training:
        spread, average = variance(b, values, dims, 0)
        unbiased, _ = variance(b, values, dims, 1)
        for old, new in zip(running, (average, unbiased), strict=True):
            if old is not None:
                wide = b.cast(old, opmath(old.dtype))
                new = b.cast(new, wide.dtype)
                mixed = b.add(
                    b.mul(const(b, new, momentum), new), b.mul(const(b, wide, 1 - momentum), wide)
                )  # fmt: skip
                updated.append(b.cast(mixed, old.dtype))
    else:
        known = [b.cast(v, values.dtype) for v in running if v is not None]
        if len(known) != 2:
            raise b.unsupported("inference without running statistics")
        average, spread = known
    rstd = b.rsqrt(b.add(spread, const(b, spread, eps)))
    if training and eps == 0:  # where all numbers are one, eager's is 0, not infinite
        rstd = b.select(b.eq(spread, const(b, spread, 0)), const(b, rstd, 0), rstd)
    if not training and weight is not None and bias is not None:
        parameters = (b.cast(v, values.dtype) for v in (weight, bias))
        (out,) = b.emit("batch_norm", values, *parameters, average, spread, eps=eps, dim=1)
        return out, average, rstd, updated
    shifted = b.sub(values, expand_dims(b, average, x.shape, dims))
    out = b.mul(shifted, expand_dims(b, rstd, x.shape, dims))
    return _affine(b, out, weight, bias, (1,)), average, rstd, updated


@expands("aten.native_batch_norm.default")
def native_batch_norm(
    b: Expander, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None,
    training: bool, momentum: float, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    if training and mean is not None:
        raise b.unsupported("running statistics updated in place")
    out, average, rstd, _ = _batch_norm(b, x, weight, bias, (mean, var), training, momentum, eps)
    return finish(b, out), _result(b, average, 1), _result(b, rstd, 2)


@expands("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    b: Expander, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, ...]:
    out, average, rstd, _ = _batch_norm(b, x, weight, bias, (None, None), training, momentum, eps)
    return finish(b, out), _result(b, average, 1), _result(b, rstd, 2)


@expands("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    b: Expander,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    out, average, rstd, _ = _batch_norm(b, x, weight, bias, (mean, var), False, momentum, eps)
    return finish(b, out), _result(b, average, 1), _result(b, rstd, 2)


@expands("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    b: Expander, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, training: bool,
    momentum: float, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """The running statistics come back as results 3 and 4."""
    out, average, rstd, updated = _batch_norm(b, x, weight, bias, (mean, var), training, momentum, eps)
    return finish(b, out), _result(b, average, 1), _result(b, rstd, 2), *(updated or (mean, var))


@expands("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    b: Expander,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """In training, with a buffer for the gradient as result 3 that is empty here, and the running statistics."""
    out, average, rstd, updated = _batch_norm(b, x, weight, bias, (mean, var), True, momentum, eps)
    reserve = b.op.results[3].tensor
    if reserve.dims != (0,):
        raise b.unsupported("a reserve for the gradient")
    empty = b.full(0, reserve.dims, reserve.dtype)
    statistics = (finish(b, new, index) for index, new in enumerate(updated, 4))
    return finish(b, out), _result(b, average, 1), _result(b, rstd, 2), empty, *statistics


def _of_one_dtype(b: Expander, grad: Value, output: Value) -> tuple[Value, Value]:
    """Both in the compute dtype. Eager compares the dtypes only where there are elements."""
    if grad.dtype != output.dtype:
        raise b.unsupported(f"a gradient of {grad.dtype} for a result of {output.dtype}")
    return b.cast(grad, opmath(grad.dtype)), b.cast(output, opmath(output.dtype))


@expands("aten._softmax_backward_data.default")
def softmax_backward(b: Expander, grad: Value, output: Value, dim: int, input_dtype: DType) -> Value:
    """(grad - sum(grad * output)) * output."""
    g, y = _of_one_dtype(b, grad, output)
    if not g.rank:
        return finish(b, b.mul(b.sub(g, b.mul(g, y)), y))
    dims = (wrap_dim(dim, g.rank),)
    total = kept(b, b.reduce(b.mul(g, y), "sum", dims), g, dims)
    return finish(b, b.mul(b.sub(g, total), y))


@expands("aten._log_softmax_backward_data.default")
def log_softmax_backward(b: Expander, grad: Value, output: Value, dim: int, input_dtype: DType) -> Value:
    """grad - e**output * sum(grad)."""
    g, y = _of_one_dtype(b, grad, output)
    if not g.rank:
        return finish(b, b.sub(g, b.mul(b.exp(y), g)))
    dims = (wrap_dim(dim, g.rank),)
    total = kept(b, b.reduce(g, "sum", dims), g, dims)
    return finish(b, b.sub(g, b.mul(b.exp(y), total)))
