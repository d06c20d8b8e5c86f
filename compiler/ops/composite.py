"""Composites: primitives that some targets have whole. Each has a *body* of the other primitives.

A target takes a composite where its own op means the same, for NaN, ties and tensors without elements too. For the
others the body is put in its place, which is written once, in `compiler/transforms/bodies/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dims import Dim, Expr, floordiv
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

FIRST, LAST = "first", "last"
LAYOUTS = (FIRST, LAST)


def to_channels_last(rank: int) -> tuple[int, ...]:
    """The permutation from [n, c, *space] to [n, *space, c]."""
    return (0, *range(2, rank), 1)


def to_channels_first(rank: int) -> tuple[int, ...]:
    """The permutation from [n, *space, c] to [n, c, *space]."""
    return (0, rank - 1, *range(1, rank - 1))


def _window_count(op: str, size: Dim, kernel: Dim, low: int, high: int, stride: int, dilation: int) -> Dim:
    """Return how many windows fit into a padded dim."""
    if any(isinstance(value, Expr) for value in (low, high, stride, dilation)):
        raise Unsupported("a stride, padding or dilation that is known at run time only", op=op)
    check(stride > 0 and dilation > 0, op, f"stride and dilation must be positive, got {stride} and {dilation}")
    check(low >= 0 and high >= 0, op, f"padding must not be negative, got {low} and {high}")
    reach = (kernel - 1) * dilation + 1
    whole = size + low + high
    check(
        isinstance(whole, Expr) or isinstance(reach, Expr) or reach <= whole,
        op, f"a window of {kernel} elements {dilation} apart does not fit into {size} padded by {low} and {high}",
    )  # fmt: skip
    return floordiv(whole - reach, stride) + 1


def _split(channels: str, shape: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the size of the channels and those of the other dims after the first."""
    return (shape[1], shape[2:]) if channels == FIRST else (shape[-1], shape[1:-1])


def _joined(channels: str, batch: Any, depth: Any, space: tuple[Any, ...]) -> tuple[Any, ...]:
    return (batch, depth, *space) if channels == FIRST else (batch, *space, depth)


def _convolution_infer(
    x: TensorType, weight: TensorType, *bias: TensorType, stride: tuple[int, ...], low: tuple[int, ...],
    high: tuple[int, ...], dilation: tuple[int, ...], groups: int, channels: str,
) -> tuple[TensorType, ...]:  # fmt: skip
    name = "convolution"
    check(channels in LAYOUTS, name, f"channels must be one of {', '.join(LAYOUTS)}, got {channels}")
    check(len(bias) <= 1, name, f"takes 2 or 3 operands, got {2 + len(bias)}")
    for other in (weight, *bias):
        check(other.dtype == x.dtype, name, f"operand dtypes differ, got {x} and {other}")
    check(not x.dtype.is_bool, name, f"takes numbers, got {x}")
    check(x.rank >= 3 and x.rank == weight.rank, name, f"ranks must be equal and at least 3, got {x} and {weight}")
    for what, values in (("stride", stride), ("low", low), ("high", high), ("dilation", dilation)):
        check(len(values) == x.rank - 2, name, f"{what} {list(values)} must have {x.rank - 2} entries")
    depth, space = _split(channels, x.dims)
    inner, kernel = _split(channels, weight.dims)
    outer = weight.dims[0]
    check(groups > 0 and depth == inner * groups, name, f"{depth} channels, {groups} groups and a weight {weight}")
    check(isinstance(outer, Expr) or outer % groups == 0, name, f"{outer} output channels in {groups} groups")
    check(all(b.shape == (outer,) for b in bias), name, f"the bias must be [{outer}], got {', '.join(map(str, bias))}")
    windows = zip(space, kernel, low, high, stride, dilation, strict=True)
    counts = tuple(_window_count(name, *window) for window in windows)
    return (TensorType(_joined(channels, x.dims[0], outer, counts), x.dtype),)


def _convolution(
    x: Any, weight: Any, *bias: Any, stride: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...],
    dilation: tuple[int, ...], groups: int, channels: str,
) -> Any:  # fmt: skip
    import torch

    if channels == LAST:
        x, weight = (v.permute(to_channels_first(v.dim())) for v in (x, weight))
    if weight.shape[1] == 0:  # eager forgets the output channels: a channel of zeros sums to the same
        x, weight = x.new_zeros((len(x), groups, *x.shape[2:])), weight.new_zeros((len(weight), 1, *weight.shape[2:]))
    amounts = [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair]
    padded = torch.nn.functional.pad(x, amounts)
    space = x.dim() - 2
    out = torch.convolution(
        padded, weight, bias[0] if bias else None, stride, (0,) * space, dilation, False, (0,), groups
    )
    return out.permute(to_channels_last(out.dim())).contiguous() if channels == LAST else out


def _pool_infer(name: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(
        x: TensorType, *, kernel: tuple[int, ...], stride: tuple[int, ...], low: tuple[int, ...],
        high: tuple[int, ...], dilation: tuple[int, ...] | None = None, channels: str,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        apart = (1,) * len(kernel) if dilation is None else dilation
        check(channels in LAYOUTS, name, f"channels must be one of {', '.join(LAYOUTS)}, got {channels}")
        check(x.dtype.is_float or (x.dtype.is_int and name == "max_pool"), name, f"takes no {x.dtype}")
        for what, values in (("kernel", kernel), ("stride", stride), ("low", low), ("high", high), ("dilation", apart)):
            check(len(values) == x.rank - 2, name, f"{what} {list(values)} must have {x.rank - 2} entries for {x}")
        check(all(size > 0 for size in kernel), name, f"kernel must be positive, got {list(kernel)}")
        depth, space = _split(channels, x.dims)
        windows = zip(space, kernel, low, high, stride, apart, strict=True)
        counts = tuple(_window_count(name, *window) for window in windows)
        return (TensorType(_joined(channels, x.dims[0], depth, counts), x.dtype),)

    return infer


def _windows_of(x: Any, value: Any, kernel: Any, stride: Any, low: Any, high: Any, dilation: Any) -> Any:
    """[n, c, *space] -> [n, c, *windows, elements], with ``value`` around x."""
    import torch

    amounts = [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair]
    x = torch.nn.functional.pad(x, amounts, value=value)
    for axis, (size, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True), 2):
        x = x.unfold(axis, (size - 1) * apart + 1, step)[..., ::apart]
    return x.flatten(x.dim() - len(kernel))


def _max_pool(x: Any, *, channels: str, **window: Any) -> Any:
    import torch

    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    if channels == LAST:
        x = x.permute(to_channels_first(x.dim()))
    out = _windows_of(x, least, **window).amax(-1)
    return out.permute(to_channels_last(out.dim())).contiguous() if channels == LAST else out


def _average_pool(x: Any, *, channels: str, **window: Any) -> Any:
    import torch

    if channels == LAST:
        x = x.permute(to_channels_first(x.dim()))
    window["dilation"] = (1,) * len(window["kernel"])
    total, count = (_windows_of(v, 0, **window).sum(-1) for v in (x, torch.ones_like(x)))
    out = total / count
    return out.permute(to_channels_last(out.dim())).contiguous() if channels == LAST else out


def _sigmoid_infer(*types: TensorType) -> tuple[TensorType, ...]:
    check(len(types) == 1, "sigmoid", f"takes 1 operand, got {len(types)}")
    check(types[0].dtype.is_float, "sigmoid", f"takes float, got {types[0]}")
    return types


def _gelu_infer(x: TensorType, *, approximate: str) -> tuple[TensorType, ...]:
    check(x.dtype.is_float and x.dtype.bits >= 32, "gelu", f"takes float of 32 bits or more, got {x}")
    check(approximate in ("none", "tanh"), "gelu", f"approximate must be none or tanh, got {approximate}")
    return (x,)


def _gelu(x: Any, *, approximate: str) -> Any:
    import torch

    if approximate == "tanh":
        return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * torch.erfc(-math.sqrt(0.5) * x)  # 1 + erf cancels, and eager's library has inf * 0 for inf


def _softmax_infer(x: TensorType, *, dim: int) -> tuple[TensorType, ...]:
    check(x.dtype.is_float and x.dtype.bits >= 32, "softmax", f"takes float of 32 bits or more, got {x}")
    check(0 <= dim < x.rank, "softmax", f"dim {dim} is none of {x}")
    check(x.shape[dim] != 0, "softmax", f"no elements have no largest one, got {x} along {dim}")
    return (x,)


def _softmax(x: Any, *, dim: int) -> Any:
    return x.softmax(dim)


def _sigmoid(x: Any) -> Any:
    import torch

    return torch.sigmoid(x)


def _clamp_infer(x: TensorType, *, low: float, high: float) -> tuple[TensorType, ...]:
    check(x.dtype.is_float, "clamp", f"takes float, got {x}")
    check(low <= high, "clamp", f"low must not be above high, got {low} and {high}")
    return (x,)


def _clamp(x: Any, *, low: float, high: float) -> Any:
    import torch

    bounds = (torch.tensor(v, dtype=x.dtype) for v in (low, high))
    least, most = bounds
    x = torch.where(x < least, least, x)
    return torch.where(x > most, most, x)


def _batch_norm_infer(
    x: TensorType, weight: TensorType, bias: TensorType, mean: TensorType, variance: TensorType, *, eps: float, dim: int
) -> tuple[TensorType, ...]:
    check(x.dtype.is_float, "batch_norm", f"takes float, got {x}")
    check(0 <= dim < x.rank, "batch_norm", f"dim {dim} is none of {x}")
    for other in (weight, bias, mean, variance):
        fits = other.dtype == x.dtype and other.shape == (x.shape[dim],)
        check(fits, "batch_norm", f"wants {x.dtype}[{x.shape[dim]}] beside {x}, got {other}")
    return (x,)


def _batch_norm(x: Any, *channels: Any, eps: float, dim: int) -> Any:
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    weight, bias, mean, variance = (v.reshape(shape) for v in channels)
    return (x - mean) * (variance + eps).rsqrt() * weight + bias


def _normalize_infer(
    x: TensorType, *affine: TensorType, dims: tuple[int, ...], eps: float
) -> tuple[TensorType, ...]:  # fmt: skip
    check(x.dtype.is_float and x.dtype.bits >= 32, "normalize", f"takes float of 32 bits or more, got {x}")
    ordered = [*dims] == sorted({*dims}) and all(0 <= d < x.rank for d in dims)
    check(ordered and bool(dims), "normalize", f"dims {list(dims)} must be some of {x}, in order")
    check(len(affine) <= 2, "normalize", f"takes 1 to 3 operands, got {1 + len(affine)}")
    wanted = TensorType(tuple(x.dims[d] for d in dims), x.dtype)
    for other in affine:
        fits = other.dtype == x.dtype and other.shape == wanted.shape
        check(fits, "normalize", f"wants {wanted} beside {x}, got {other}")
    return (x,)


def _normalize(x: Any, *affine: Any, dims: tuple[int, ...], eps: float) -> Any:
    centered = x - x.mean(dims, keepdim=True)
    out = centered * ((centered**2).mean(dims, keepdim=True) + eps).rsqrt()
    shape = [size if d in dims else 1 for d, size in enumerate(x.shape)]
    for index, other in enumerate(affine):
        other = other.reshape(shape)
        out = out + other if index else out * other
    return out


def _row(
    name: str, doc: str, arity: int | None, infer: Callable[..., Any], evaluate: Callable[..., Any],
    attributes: tuple[str, ...] = (), elementwise: bool = False,
) -> Primitive:  # fmt: skip
    return Primitive(name, doc, arity, infer, evaluate, attributes, elementwise, composite=True)


ROWS = (
    _row(
        "convolution",
        "x [n, c, *space] and weight [o, c / groups, *kernel], with a bias [o] or without: each output element is the "
        "sum over a window, and over the channels of its group, of products, plus the bias. low and high zeros are "
        "around each dim of space. With channels last, x is [n, *space, c], weight [o, *kernel, c / groups] and the "
        "result [n, *windows, o].",
        None, _convolution_infer, _convolution, ("stride", "low", "high", "dilation", "groups", "channels"),
    ),
    _row(
        "max_pool",
        "x [n, c, *space]: the largest element of each window, a NaN before all. What low and high add around each dim "
        "of space is smaller than any number. With channels last, as for convolution.",
        1, _pool_infer("max_pool"), _max_pool, ("kernel", "stride", "low", "high", "dilation", "channels"),
    ),
    _row(
        "average_pool",
        "x [n, c, *space]: the sum of each window over the number of its elements, without the low and high around "
        "each dim of space. With channels last, as for convolution.",
        1, _pool_infer("average_pool"), _average_pool, ("kernel", "stride", "low", "high", "channels"),
    ),
    _row(
        "batch_norm",
        "x, and weight, bias, mean and variance [x.shape[dim]]: (x - mean) / sqrt(variance + eps) * weight + bias, "
        "each along dim.",
        5, _batch_norm_infer, _batch_norm, ("eps", "dim"),
    ),
    _row(
        "normalize",
        "x, and weight [x.shape[d] for d in dims] and bias, or weight alone, or neither: (x - mean) / "
        "sqrt(variance + eps) * weight + bias, where mean is that of x over dims, and variance that of (x - mean)².",
        None, _normalize_infer, _normalize, ("dims", "eps"),
    ),
    _row(
        "softmax", "e**(x - m) over the sum of these along dim, where m is the largest element along dim.",
        1, _softmax_infer, _softmax, ("dim",),
    ),
    _row("sigmoid", "1 / (1 + e**-x).", 1, _sigmoid_infer, _sigmoid, elementwise=True),
    _row(
        "gelu",
        "x/2 (1 + erf(x/√2)); with approximate tanh, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).",
        1, _gelu_infer, _gelu, ("approximate",), elementwise=True,
    ),
    _row(
        "clamp", "low where x is below it, high where x is above it, else x: a NaN stays, and a zero keeps its sign.",
        1, _clamp_infer, _clamp, ("low", "high"), elementwise=True,
    ),
)  # fmt: skip
