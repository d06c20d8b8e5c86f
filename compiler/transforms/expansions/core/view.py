"""Views, as values: a view op gives a new tensor of the same elements. Copies and casts are here too."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, symbols
from torchstone.compiler.transforms.expansions.common import slice_dim, slice_start, tensor, wrap_dim
from torchstone.compiler.transforms.rules import Expander, expands


# The new shape is in the result's type: PyTorch has worked out -1, symbolic sizes included.
@expands(
    "aten.view.default", "aten.view_copy.default", "aten._unsafe_view.default",
    "aten._reshape_copy.default", "aten._reshape_alias.default", "aten._reshape_alias_copy.default",
    "aten.unsqueeze.default", "aten.unsqueeze_copy.default", "aten.squeeze.default", "aten.squeeze.dim",
    "aten.squeeze.dims", "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
)  # fmt: skip
def reshape(b: Expander, x: Value, *_: Any) -> Value:
    return b.reshape(x, b.type.dims)


@expands(
    "aten.alias.default", "aten.alias_copy.default", "aten.detach.default", "aten.detach_copy.default",
    "aten.clone.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default",
    "aten.lift.default",
)  # fmt: skip
def same(b: Expander, x: Value, *_: Any) -> Value:
    return x


@expands("aten._to_copy.default")
def to_copy(b: Expander, x: Value, *_: Any) -> Value:
    return b.cast(x, b.type.dtype)


@expands("aten.copy.default")
def copy(b: Expander, x: Value, source: Any, non_blocking: bool = False) -> Value:
    """``source`` is a tensor, or a number that stands for one."""
    return b.broadcast(tensor(b, source, b.type.dtype), b.type.dims)


@expands("aten.expand.default", "aten.expand_copy.default")
def expand(b: Expander, x: Value, *_: Any) -> Value:
    negative = [dim for dim in b.type.dims if isinstance(dim, int) and dim < 0]
    if negative:  # beside a size of 0 eager gives even those, to which no op can be applied
        raise b.unsupported(f"a size of {negative[0]}")
    return b.broadcast(x, b.type.dims)


@expands("aten.permute.default", "aten.permute_copy.default")
def permute(b: Expander, x: Value, dims: tuple[int, ...]) -> Value:
    return b.transpose(x, tuple(wrap_dim(d, x.rank) for d in dims))


@expands("aten.transpose.int", "aten.transpose_copy.int")
def transpose(b: Expander, x: Value, dim0: int, dim1: int) -> Value:
    permutation = list(range(x.rank))
    if x.rank:
        i, j = wrap_dim(dim0, x.rank), wrap_dim(dim1, x.rank)
        permutation[i], permutation[j] = j, i
    return b.transpose(x, tuple(permutation))


@expands("aten.t.default", "aten.t_copy.default")
def t(b: Expander, x: Value) -> Value:
    return b.transpose(x, tuple(reversed(range(x.rank))))


@expands("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    b: Expander, x: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    dim = wrap_dim(dim, x.rank)
    return slice_dim(b, x, dim, start, step, b.type.dims[dim])


@expands("aten.narrow_copy.default")
def narrow(b: Expander, x: Value, dim: int, start: Dim, length: Dim) -> Value:
    return slice_dim(b, x, wrap_dim(dim, x.rank), start, 1, length)


@expands("aten.select.int", "aten.select_copy.int")
def select(b: Expander, x: Value, dim: int, index: Dim) -> Value:
    dim = wrap_dim(dim, x.rank)
    return b.reshape(slice_dim(b, x, dim, index, 1, 1), b.type.dims)


def _pieces(b: Expander, x: Value, dim: int) -> tuple[Value, ...]:
    """Cut ``dim`` into pieces as long as the results are."""
    dim = wrap_dim(dim, x.rank)
    pieces: list[Value] = []
    start: Dim = 0
    for result in b.op.results:
        length = result.shape[dim]
        pieces.append(b.slice(x, dim, start, start + length))
        start = start + length
    return tuple(pieces)


@expands(
    "aten.split.Tensor", "aten.split_copy.Tensor", "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default", "aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes.default",
)  # fmt: skip
def split(b: Expander, x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    return _pieces(b, x, dim)


@expands("aten.unbind.int", "aten.unbind_copy.int")
def unbind(b: Expander, x: Value, dim: int = 0) -> tuple[Value, ...]:
    dim = wrap_dim(dim, x.rank)
    return tuple(b.reshape(b.slice(x, dim, i, i + 1), r.shape) for i, r in enumerate(b.op.results))


@expands("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(b: Expander, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The square that begins at the offset, flattened: its diagonal is every (k + 1)-th element."""
    length = b.type.dims[-1]
    dim1, dim2 = wrap_dim(dim1, x.rank), wrap_dim(dim2, x.rank)
    rest = tuple(d for d in range(x.rank) if d not in (dim1, dim2))
    x = b.transpose(x, (*rest, dim1, dim2))
    lead = x.shape[:-2]
    row, column = (max(-offset, 0), max(offset, 0)) if length != 0 else (0, 0)
    if not isinstance(length, int):
        step = b.iota(size=length, dtype=dt.int64)
        at = [b.add(step, b.full_like(step, first)) for first in (row, column)]
        return b.transpose(b.gather(x, *at, dims=(x.rank - 2, x.rank - 1)), (*range(1, x.rank - 1), 0))
    x = b.slice(x, x.rank - 2, row, row + length)
    x = b.slice(x, x.rank - 1, column, column + length)
    x = b.reshape(x, (*lead, length * length))
    return b.slice(x, x.rank - 1, 0, length * length, length + 1) if length else b.reshape(x, b.type.dims)


@expands("aten.diag_embed.default")
def diag_embed(b: Expander, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Each element followed by as many zeros as the square has columns, cut to the square; then moved by the offset."""
    size, lead = x.shape[-1], x.shape[:-1]
    rank = x.rank + 1
    dim1, dim2 = wrap_dim(dim1, rank), wrap_dim(dim2, rank)
    zero = b.scalar(_zero(x), x.dtype)
    last = x.rank
    wide = b.emit("pad", b.reshape(x, (*lead, size, 1)), zero, low=(0,) * rank, high=(*(0,) * last, size))[0]
    flat = b.reshape(wide, (*lead, size * (size + 1)))
    square = b.reshape(b.slice(flat, last - 1, 0, size * size), (*lead, size, size))
    row, column = max(-offset, 0), max(offset, 0)
    low, high = [0] * rank, [0] * rank
    low[-2], low[-1], high[-2], high[-1] = row, column, column, row
    if offset:
        square = b.emit("pad", square, zero, low=tuple(low), high=tuple(high))[0]
    # Result dim dim1 is the row, dim2 the column, the others keep their order.
    rest = iter(range(rank - 2))
    order = [rank - 2 if d == dim1 else rank - 1 if d == dim2 else next(rest) for d in range(rank)]
    return b.transpose(square, tuple(order))


def _zero(x: Value) -> Any:
    return False if x.dtype.is_bool else 0 if x.dtype.is_int else 0.0


@expands("aten.unfold.default", "aten.unfold_copy.default")
def unfold(b: Expander, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along dim, their elements in a new last dim: element i of all windows is a strided slice."""
    if size == 0:
        raise b.unsupported("windows of size 0")
    if not x.rank:
        return b.reshape(x, b.type.dims)
    dim = wrap_dim(dim, x.rank)
    windows = b.type.dims[dim]
    if size > MOST_SLICES:
        raise b.unsupported(f"windows of more than {MOST_SLICES} elements")
    parts = [slice_dim(b, x, dim, i, step, windows) for i in range(size)]
    parts = [b.reshape(p, (*p.shape, 1)) for p in parts]
    return b.emit("concat", *parts, dim=x.rank)[0]


# Above this many slices a gather is what is wanted.
MOST_SLICES = 64


@expands("aten.flip.default")
def flip(b: Expander, x: Value, dims: tuple[int, ...]) -> Value:
    wrapped = tuple(sorted(wrap_dim(d, x.rank) for d in dims))
    return b.reverse(x, dims=wrapped) if wrapped and x.rank else x


@expands("aten._conj.default", "aten._conj_physical.default", "aten._conj_copy.default")
def conj(b: Expander, x: Value) -> Value:
    return b.complex(b.real(x), b.neg(b.imag(x))) if x.dtype.is_complex else x


@expands("aten._neg_view.default", "aten._neg_view_copy.default")
def neg_view(b: Expander, x: Value) -> Value:
    return b.neg(x)


@expands("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(b: Expander, x: Value) -> Value:
    """Real and imaginary part in a new last dim."""
    parts = [b.reshape(v, (*x.shape, 1)) for v in (b.real(x), b.imag(x))]
    return b.emit("concat", *parts, dim=x.rank)[0]


@expands("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(b: Expander, x: Value) -> Value:
    parts = [b.reshape(b.slice(x, x.rank - 1, i, i + 1), x.shape[:-1]) for i in (0, 1)]
    return b.complex(*parts)


@expands("aten.complex.default")
def complex_(b: Expander, x: Value, y: Value) -> Value:
    return b.complex(*(b.broadcast(v, b.type.dims) for v in (x, y)))


@expands("aten.select_scatter.default")
def select_scatter(b: Expander, x: Value, source: Value, dim: int, index: Dim) -> Value:
    dim = wrap_dim(dim, x.rank)
    start = slice_start(index, x.shape[dim])
    slot = b.reshape(b.cast(source, x.dtype), (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    before, after = b.slice(x, dim, 0, start), b.slice(x, dim, start + 1, x.shape[dim])
    return b.emit("concat", before, slot, after, dim=dim)[0]


@expands("aten.slice_scatter.default")
def slice_scatter(
    b: Expander, x: Value, source: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    """x with a slice replaced; with a step, the replaced elements are laid out by padding and chosen by position."""
    dim = wrap_dim(dim, x.rank)
    size = x.shape[dim]
    first = slice_start(start, size)
    length = source.shape[dim]
    if not symbols(length) <= symbols(size):  # else it is the slice's, as PyTorch has worked it out: x[-1:0] is empty
        length = _length(size, first, end, step)
    if length == 0:
        return x
    source = b.broadcast(b.cast(source, x.dtype), (*x.shape[:dim], length, *x.shape[dim + 1 :]))
    if step == 1:
        before, after = b.slice(x, dim, 0, first), b.slice(x, dim, first + length, size)
        return b.emit("concat", before, source, after, dim=dim)[0]
    if not isinstance(length, int) or not isinstance(first, int):
        raise b.unsupported("a stepped slice of run-time length")
    # [n] -> [n, step] padded after each element, flattened to n * step, then cut and moved to where the slice begins.
    spread = b.reshape(source, (*x.shape[:dim], length, 1, *x.shape[dim + 1 :]))
    zero = b.scalar(_zero(x), x.dtype)
    none = (0,) * spread.rank
    spread = b.emit("pad", spread, zero, low=none, high=(*none[: dim + 1], step - 1, *none[dim + 2 :]))[0]
    spread = b.reshape(spread, (*x.shape[:dim], length * step, *x.shape[dim + 1 :]))
    spread = b.slice(spread, dim, 0, (length - 1) * step + 1)
    rest = size - first - ((length - 1) * step + 1)
    none = (0,) * x.rank
    low, high = (*none[:dim], first, *none[dim + 1 :]), (*none[:dim], rest, *none[dim + 1 :])
    spread = b.emit("pad", spread, zero, low=low, high=high)[0]
    return b.select(_every(b, x, dim, first, step, length), spread, x)


def _length(size: Dim, first: Dim, end: Dim | None, step: int) -> Dim:
    """The length of a slice, of which no size is taken from behind where it ends at a positive number."""
    stop = size if end is None or (isinstance(end, int) and end >= 2**62) else end
    stop = slice_start(stop, size) if not (isinstance(stop, int) and not isinstance(size, int) and stop > 0) else stop
    if isinstance(stop, int) and isinstance(first, int) and stop <= first:
        return 0
    return (stop - first + (step - 1)) // step


def _every(b: Expander, x: Value, dim: int, first: int, step: int, length: int) -> Value:
    """True at first, first + step, … (``length`` times) along ``dim``."""
    position = b.iota(size=x.shape[dim], dtype=dt.int64)

    def number(value: int) -> Value:
        return b.full_like(position, value)

    offset = b.sub(position, number(first))
    inside = b.and_(b.ge(offset, number(0)), b.lt(offset, number(length * step)))
    hit = b.and_(inside, b.eq(b.rem(offset, number(step)), number(0)))
    return b.broadcast(hit, x.shape, (dim,))
