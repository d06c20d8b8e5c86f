"""Primitives that move, make or join elements without computing on them."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dims import Dim, Expr, Shape, floordiv, product
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check


def _broadcast_infer(x: TensorType, *, shape: Shape, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    check(len(dims) == x.rank, "broadcast", f"dims {list(dims)} must name one result dim for each dim of {x}")
    check(list(dims) == sorted(set(dims)), "broadcast", f"dims {list(dims)} must be strictly increasing")
    for size, dim in zip(x.shape, dims, strict=True):
        check(0 <= dim < len(shape), "broadcast", f"dim {dim} out of range for shape {list(shape)}")
        check(
            size in (1, shape[dim]), "broadcast", f"cannot expand size {size} to {shape[dim]} in {x} -> {list(shape)}"
        )
    return (TensorType(tuple(shape), x.dtype),)


def _broadcast(x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    view = [1] * len(shape)
    for size, dim in zip(x.shape, dims, strict=True):
        view[dim] = size
    return x.reshape(view).expand(shape).clone()


def _reshape_infer(x: TensorType, *, shape: Shape) -> tuple[TensorType, ...]:
    have, want = product(x.dims), product(shape)
    if have != want and not (isinstance(have, int) and isinstance(want, int)):
        raise Unsupported(f"reshape: {x} to {list(shape)}, which has as many elements for some sizes only")
    check(have == want, "reshape", f"{x} has not as many elements as {list(shape)}")
    return (TensorType(tuple(shape), x.dtype),)


def _transpose_infer(x: TensorType, *, permutation: tuple[int, ...]) -> tuple[TensorType, ...]:
    check(
        sorted(permutation) == list(range(x.rank)), "transpose", f"{list(permutation)} does not permute the dims of {x}"
    )
    return (TensorType(tuple(x.shape[p] for p in permutation), x.dtype),)


def slice_size(start: Dim, limit: Dim, stride: int) -> Dim:
    """Return ``ceil((limit - start) / stride)``."""
    return floordiv(limit - start + (stride - 1), stride)


def _slice_infer(
    x: TensorType, *, start: tuple[Dim, ...], limit: tuple[Dim, ...], stride: tuple[int, ...]
) -> tuple[TensorType, ...]:
    for name, values in (("start", start), ("limit", limit), ("stride", stride)):
        check(len(values) == x.rank, "slice", f"{name} {list(values)} must have one entry for each dim of {x}")
    for lo, hi, step, size in zip(start, limit, stride, x.dims, strict=True):
        if isinstance(step, Expr):
            raise Unsupported("a step that is known at run time only", op="slice")
        check(step > 0, "slice", f"stride must be positive, got {step}")
        if isinstance(lo, int) and isinstance(hi, int) and isinstance(size, int):
            check(0 <= lo <= hi <= size, "slice", f"range {lo}:{hi} is outside size {size} of {x}")
    sizes = tuple(slice_size(a, b, s) for a, b, s in zip(start, limit, stride, strict=True))
    return (TensorType(sizes, x.dtype),)


def _slice(x: Any, *, start: tuple[int, ...], limit: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    return x[tuple(slice(a, max(a, b), s) for a, b, s in zip(start, limit, stride, strict=True))].clone()


def _reverse_infer(x: TensorType, *, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    check(len(set(dims)) == len(dims), "reverse", f"dims {list(dims)} repeat")
    check(all(0 <= d < x.rank for d in dims), "reverse", f"dims {list(dims)} out of range for {x}")
    return (x,)


def _concat_infer(*types: TensorType, dim: int) -> tuple[TensorType, ...]:
    check(bool(types), "concat", "takes at least one operand")
    first = types[0]
    check(0 <= dim < first.rank, "concat", f"dim {dim} out of range for {first}")
    for other in types[1:]:
        check(other.dtype == first.dtype, "concat", f"dtypes differ, got {first} and {other}")
        rest = (other.shape[:dim], other.shape[dim + 1 :])
        check(
            rest == (first.shape[:dim], first.shape[dim + 1 :]),
            "concat",
            f"shapes differ outside dim {dim}: {first}, {other}",
        )
    total: Dim = 0
    for t in types:
        total = total + t.dims[dim]
    return (TensorType((*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype),)


def _concat(*tensors: Any, dim: int) -> Any:
    import torch

    return torch.cat(tensors, dim)


def _pad_infer(
    x: TensorType, value: TensorType, *, low: tuple[Dim, ...], high: tuple[Dim, ...]
) -> tuple[TensorType, ...]:
    check(value.rank == 0 and value.dtype == x.dtype, "pad", f"the padding value must be {x.dtype}[], got {value}")
    check(
        len(low) == len(high) == x.rank,
        "pad",
        f"low {list(low)} and high {list(high)} must have {x.rank} entries for {x}",
    )
    for amount in (*low, *high):
        check(
            isinstance(amount, Expr) or amount >= 0,
            "pad",
            f"amounts must not be negative, got {amount} (slice instead)",
        )
    return (TensorType(tuple(a + d + b for a, d, b in zip(low, x.dims, high, strict=True)), x.dtype),)


def _pad(x: Any, value: Any, *, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    shape = [a + d + b for a, d, b in zip(low, x.shape, high, strict=True)]
    out = value.expand(shape).clone()
    out[tuple(slice(a, a + d) for a, d in zip(low, x.shape, strict=True))] = x
    return out


def _iota_infer(*, size: Dim, dtype: DType) -> tuple[TensorType, ...]:
    check(dtype.is_int or dtype.is_float, "iota", f"takes an int or float dtype, got {dtype}")
    return (TensorType((size,), dtype),)


def _iota(*, size: int, dtype: DType) -> Any:
    import torch

    return torch.arange(size, dtype=torch.int64).to(getattr(torch, dtype.name))


def _flat_length(value: Any) -> int:
    return sum(_flat_length(v) for v in value) if isinstance(value, tuple) else 1


def _constant_infer(*, value: Any, shape: tuple[int, ...], dtype: DType) -> tuple[TensorType, ...]:
    count = product(tuple(shape))
    check(
        not isinstance(value, tuple) or len(value) == count,
        "constant",
        f"{_flat_length(value)} values for {list(shape)}",
    )
    return (TensorType(tuple(shape), dtype),)


def _constant(*, value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    import torch

    target = getattr(torch, dtype.name)
    if isinstance(value, tuple):
        return torch.tensor(value, dtype=target).reshape(shape)
    return torch.full(shape, value, dtype=target)


def _reshape(x: Any, *, shape: tuple[int, ...]) -> Any:
    return x.reshape(shape).clone()


def _transpose(x: Any, *, permutation: tuple[int, ...]) -> Any:
    return x.permute(permutation).clone()


def _reverse(x: Any, *, dims: tuple[int, ...]) -> Any:
    return x.flip(dims)


def _windows_infer(
    x: TensorType, *, dims: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[TensorType, ...]:
    check(list(dims) == sorted(set(dims)), "windows", f"dims {list(dims)} must be strictly increasing")
    check(all(0 <= d < x.rank for d in dims), "windows", f"dims {list(dims)} out of range for {x}")
    counts = list(x.dims)
    for name, values in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
        check(
            len(values) == len(dims), "windows", f"{name} {list(values)} must have one entry for each of {list(dims)}"
        )
        check(all(v > 0 for v in values), "windows", f"{name} must be positive, got {list(values)}")
    for d, size, step, apart in zip(dims, kernel, stride, dilation, strict=True):
        reach, whole = (size - 1) * apart + 1, x.dims[d]
        check(
            isinstance(whole, Expr) or reach <= whole,
            "windows",
            f"a window of {size} elements {apart} apart does not fit into size {whole} of {x}",
        )
        counts[d] = floordiv(whole - reach, step) + 1
    return (TensorType((*counts, *kernel), x.dtype),)


def _windows(
    x: Any, *, dims: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    for d, size, step, apart in zip(dims, kernel, stride, dilation, strict=True):
        x = x.unfold(d, (size - 1) * apart + 1, step)[..., ::apart]
    return x.clone()


ROWS = (
    Primitive(
        "broadcast", "Dim i of x becomes dim dims[i] of shape; a size 1 is repeated, dims not named are new.",
        1, _broadcast_infer, _broadcast, ("shape", "dims"),
    ),
    Primitive("reshape", "The same elements, row-major, in another shape.", 1, _reshape_infer, _reshape, ("shape",)),
    Primitive(
        "transpose", "Result dim i is dim permutation[i] of x.",
        1, _transpose_infer, _transpose, ("permutation",),
    ),
    Primitive(
        "slice", "x[start:limit:stride] in every dim; 0 <= start <= limit <= size, stride > 0.",
        1, _slice_infer, _slice, ("start", "limit", "stride"),
    ),
    Primitive(
        "windows",
        "Sliding windows: dims[i] becomes the windows that fit, stride[i] apart, and a new last dim, one for each of "
        "dims, the kernel[i] elements of a window, dilation[i] apart. A convolution contracts over it, a pooling "
        "reduces it.",
        1, _windows_infer, _windows, ("dims", "kernel", "stride", "dilation"),
    ),
    Primitive("reverse", "Reverse the order of the elements along dims.", 1, _reverse_infer, _reverse, ("dims",)),
    Primitive(
        "concat", "Join one or more tensors along dim; the other sizes are equal.",
        None, _concat_infer, _concat, ("dim",),
    ),
    Primitive(
        "pad", "Add low[i] elements before and high[i] after x in dim i, all equal to the 0-d value.",
        2, _pad_infer, _pad, ("low", "high"),
    ),
    Primitive("iota", "[0, 1, …, size - 1], rounded to dtype.", 0, _iota_infer, _iota, ("size", "dtype")),
    Primitive(
        "constant", "A tensor of a static shape: value is one number for all elements, or a tuple of all, row-major.",
        0, _constant_infer, _constant, ("value", "shape", "dtype"),
    ),
)  # fmt: skip
