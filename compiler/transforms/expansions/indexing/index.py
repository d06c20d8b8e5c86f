"""Reading at computed places: advanced indexing, gather, take, index_select; the checks every index goes through."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import DType, Shape, Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.transforms.expansions.common import const, convert_number, tensor, wrap_dim
from torchstone.compiler.transforms.expansions.core.reduction import broadcast_shape
from torchstone.compiler.transforms.expansions.linalg.masks import mask_indices
from torchstone.compiler.transforms.rules import Expander, expands


def bound(b: Expander, like: Value, size: Dim) -> Value:
    """A size, int64 with the shape of ``like``."""
    return b.broadcast(tensor(b, size, dt.int64), like.shape, ())


def check_all(b: Expander, condition: Value, error: str) -> None:
    """Raise at run time unless the condition holds everywhere."""
    b.emit("check", b.reduce(condition, "and", tuple(range(condition.rank))), message=error)


@expands("aten._assert_async.default")
def assert_true(
    b: Expander, x: Value, message: str = "Expected Tensor with single nonzero value, but got zero"
) -> None:
    """Raise at run time where the only element is 0 or False."""
    check_all(b, x if x.dtype.is_bool else b.ne(x, const(b, x, 0)), message)


expands("aten._assert_async.msg")(assert_true)


def checked(b: Expander, index: Value, size: Dim, error: str = "") -> Value:
    """An index as int64, out of [0, size) an error at run time, as in eager."""
    index = b.cast(index, dt.int64)
    inside = b.and_(b.ge(index, const(b, index, 0)), b.lt(index, bound(b, index, size)))
    check_all(b, inside, error or f"index out of range: it must be at least 0 and below the size {size}")
    return index


def wrapped(b: Expander, index: Value, size: Dim, error: str = "") -> Value:
    """An index as int64, negative ones counted from the end; out of [-size, size) an error at run time."""
    index = b.cast(index, dt.int64)
    from_end = b.add(index, bound(b, index, size))
    index = b.select(b.lt(index, const(b, index, 0)), from_end, index)
    return checked(b, index, size, error or f"index is out of bounds for dimension with size {size}")


def read(b: Expander, x: Value, indices: Sequence[Value], dims: Sequence[int]) -> Value:
    """``flat.gather``; where there is nothing to read, the checks of the indices have failed before."""
    rest = tuple(size for d, size in enumerate(x.shape) if d not in dims)
    shape = (*indices[0].shape, *rest)
    if 0 in x.shape:
        return zeros(b, shape, x.dtype)
    return b.emit("gather", x, *indices, dims=tuple(dims))[0]


def zeros(b: Expander, shape: Shape, dtype: DType) -> Value:
    return b.full(convert_number(0, dtype), shape, dtype)


def flattened(b: Expander, x: Value) -> Value:
    return b.reshape(x, (product(x.shape),))


def at_least_1d(b: Expander, x: Value) -> Value:
    return x if x.rank else b.reshape(x, (1,))


def to_front(rank: int, dims: Sequence[int]) -> tuple[int, ...]:
    """The permutation that puts ``dims`` before the others."""
    return (*dims, *(d for d in range(rank) if d not in dims))


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def places(b: Expander, index: Value, dim: int) -> list[Value]:
    """An index tensor for every dim: the one given for ``dim``, for the others the place in the index tensor itself."""
    iota = (b.iota(size=size, dtype=dt.int64) for size in index.shape)
    return [index if d == dim else b.broadcast(v, index.shape, (d,)) for d, v in enumerate(iota)]


class Advanced:
    """How ``x[indices]`` lies: PyTorch's advanced indexing, None standing for a dim taken whole.

    ``dims`` are the indexed dims and ``indices`` their index tensors, broadcast to one shape. ``order`` permutes the
    primitive's layout, index dims first, to the result's: index dims stay first when a whole dim is between indexed
    ones, else they take the place of those. The indices ``inside`` are known to be in range.
    """

    def __init__(self, b: Expander, x: Value, indices: Sequence[Value | None], inside: Sequence[Value] = ()) -> None:
        self.dims = [d for d, index in enumerate(indices) if index is not None]
        given = [index for index in indices if index is not None]
        chosen = broadcast_shape(*given)
        rest = [s for d, s in enumerate(x.shape) if d not in self.dims]
        # Where the result has no elements eager looks at no index.
        empty = 0 in chosen or 0 in rest
        self.indices = [
            b.broadcast(b.cast(index, dt.int64) if empty or index in inside else wrapped(b, index, x.shape[d]), chosen)
            for d, index in zip(self.dims, given, strict=True)
        ]
        adjacent = self.dims[-1] - self.dims[0] + 1 == len(self.dims)
        first = self.dims[0] if adjacent else 0
        rank = len(chosen)
        self.order = (
            *range(rank, rank + first),
            *range(rank),
            *range(rank + first, rank + len(rest)),
        )
        self.shape = tuple((*chosen, *rest)[d] for d in self.order)


def is_mask(index: Value | None) -> bool:
    return index is not None and (index.dtype.is_bool or index.dtype == dt.uint8)


@expands("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Expander, x: Value, indices: Sequence[Value | None]) -> Value:
    if all(i is None for i in indices):
        return x
    made, indices = _without_masks(b, indices)
    at = Advanced(b, x, indices, inside=made)
    return b.transpose(read(b, x, at.indices, at.dims), at.order)


def _without_masks(b: Expander, indices: Sequence[Value | None]) -> tuple[Sequence[Value], Sequence[Value | None]]:
    """Return the index tensors of the true elements of masks, and the indices with them in their place."""
    if not any(map(is_mask, indices)):
        return (), indices
    given = [d for d, i in enumerate(indices) if i is not None]
    first = given[0] if given[-1] - given[0] + 1 == len(given) else 0
    rank = max([1, *(i.rank for i in indices if i is not None and not is_mask(i))])
    return indices_for_masks(b, indices, b.type.dims[first + rank - 1])


def indices_for_masks(
    b: Expander, indices: Sequence[Value | None], size: Dim
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    """The same for masks of ``size`` true elements each, checked at run time: the last dim of what indices select."""
    made: list[Value] = []
    replaced: list[Value | None] = []
    for index in indices:
        if index is None or not is_mask(index):
            replaced.append(index)
            continue
        if not index.rank:
            raise b.unsupported("a mask without dims")
        found = mask_indices(b, index, size)
        made += found
        replaced += found
    return made, replaced


@expands("aten.gather.default")
def gather(b: Expander, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """Each element of the index tensor chooses along ``dim``, at its own place in the other dims."""
    x, index = at_least_1d(b, x), at_least_1d(b, index)
    if 0 in index.shape:
        return zeros(b, b.type.dims, x.dtype)
    dim = wrap_dim(dim, x.rank)
    if x.shape[dim] == 0:  # nll_loss of no classes reads here what it ignores
        raise b.unsupported("from a dim of no elements")
    index = checked(b, index, x.shape[dim])
    return b.reshape(read(b, x, places(b, index, dim), range(x.rank)), b.type.dims)


@expands("aten.index_select.default")
def index_select(b: Expander, x: Value, dim: int, index: Value) -> Value:
    if not x.rank:
        checked(b, index, 1)
        count = tensor(b, product(index.shape), dt.int64)
        b.emit("check", b.eq(count, const(b, count, 1)), message="Index to scalar can have only 1 value")
        return x
    index = at_least_1d(b, index)
    dim = wrap_dim(dim, x.rank)
    out = read(b, x, [checked(b, index, x.shape[dim])], [dim])
    return b.reshape(b.transpose(out, inverse(to_front(x.rank, [dim]))), b.type.dims)


@expands("aten.take.default")
def take(b: Expander, x: Value, index: Value) -> Value:
    """Elements of the flattened tensor."""
    x = flattened(b, x)
    return read(b, x, [wrapped(b, index, x.shape[0])], [0])
