"""Wrong places: bounds, windows, axes, broadcasting, order, masks."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.expansions.common import const, wrap_dim
from torchstone.compiler.transforms.rules import Expander
from torchstone.conformance.mutants.mutant import Rule, arguments, expansion, mutants, primitives


def _later(b: Expander, x: Value, value: Value, *, low: Any, high: Any) -> Value:
    """Padding with one element less behind and one more before."""
    moved = [isinstance(h, int) and h > 0 for h in high]
    low, high = ([n + step * m for n, m in zip(side, moved, strict=True)] for side, step in ((low, 1), (high, -1)))
    return b.emit("pad", x, value, low=tuple(low), high=tuple(high))[0]


def _not_the_last(b: Expander, x: Value, *indices: Value, dims: tuple[int, ...]) -> Value:
    """A gather that is bounded by the last element but one."""
    sizes = [x.shape[d] for d in dims]
    near = [
        b.min(i, const(b, i, size - 2)) if isinstance(size, int) and size > 1 else i
        for i, size in zip(indices, sizes, strict=True)
    ]
    return b.gather(x, *near, dims=dims)


def _exclusive(b: Expander, x: Value, **how: Any) -> Value:
    return b.sub(b.scan(x, **how), x)


def _without_the_tail(b: Expander, x: Value, *, kind: str, dims: tuple[int, ...]) -> Value:
    """A reduction in pairs that forgets the last element of an odd number."""
    last = dims[-1] if dims else 0
    size = x.shape[last] if dims else 0
    if isinstance(size, int) and size % 2 and size > 2:
        x = b.slice(x, last, 0, size - 1)
    return b.reduce(x, kind, dims)


def _one_earlier(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
        earlier = isinstance(start, int) and 0 < start < 2**31
        return right(b, x, dim, start - 1 if earlier else start, end, step)

    return rule


def _upper_middle(b: Expander, x: Value, *, start: Any, limit: Any, stride: Any) -> Value:
    """The slice of one element in the middle taken one later, where there are two in the middle."""
    start, limit = list(start), list(limit)
    for d, size in enumerate(x.shape):
        if isinstance(size, int) and size % 2 == 0 and limit[d] - start[d] == 1 and start[d] == (size - 1) // 2:
            start[d], limit[d] = start[d] + 1, limit[d] + 1
    return b.emit("slice", x, start=tuple(start), limit=tuple(limit), stride=stride)[0]


def _border_repeated(b: Expander, x: Value, *, start: Any, limit: Any, stride: Any) -> Value:
    """Slices that begin at the element after the border begin at the border."""
    early = tuple(int(lo == 1) for lo in start)
    start, limit = (tuple(v - e for v, e in zip(ends, early, strict=True)) for ends in (start, limit))
    return b.emit("slice", x, start=start, limit=limit, stride=stride)[0]


def _plus_one(n: Any) -> Any:
    return n + 1


OFF_BY_ONE = mutants(
    "off by one",
    (
        "slice-one-early",
        "slices begin one element before their start",
        "narrow slice __getitem__",
        expansion("slice.Tensor", _one_earlier),
    ),
    (
        "pool-padding",
        "windows of average pooling one element off in the padding",
        "nn.functional.avg_pool2d",
        primitives("avg_pool2d.default", pad=_later),
    ),
    (
        "conv-padding",
        "windows of a convolution one element off in the padding",
        "nn.functional.conv2d",
        primitives("flat.convolution", pad=_later),
    ),
    (
        "gather-not-the-last",
        "the last element is never read",
        "gather index_select take",
        primitives("gather.default index_select.default take.default", gather=_not_the_last),
    ),
    ("cumsum-exclusive", "an element is not in its own sum", "cumsum", primitives("cumsum.default", scan=_exclusive)),
    ("tril-diagonal", "one diagonal too many", "tril", arguments("tril.default", diagonal=_plus_one)),
    (
        "roll-too-far",
        "rolled by one more",
        "roll",
        arguments("roll.default", shifts=lambda shifts: tuple(n + 1 for n in shifts)),
    ),
    ("kthvalue-from-0", "k counted from 0", "kthvalue", arguments("kthvalue.default", k=lambda k: max(k - 1, 1))),
    (
        "median-upper",
        "the upper of two in the middle",
        "median",
        primitives("median.default median.dim", slice=_upper_middle),
    ),
    (
        "reflection-of-border",
        "the border element repeated",
        "nn.functional.pad.reflect",
        primitives(
            "reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default", slice=_border_repeated
        ),
    ),
    (
        "sum-without-tail",
        "the last of an odd number of elements not added",
        "sum",
        primitives("sum.default sum.dim_IntList", reduce=_without_the_tail),
    ),
    (
        "diagonal-offset",
        "one diagonal further",
        "diag_embed",
        primitives("diag_embed.default", pad=_later),
    ),
)


# Axes


def _next_axis(b: Expander, x: Value, *, kind: str, dims: tuple[int, ...]) -> Value:
    """The reduction of one dim takes the next one, where that is as large."""
    if len(dims) == 1 and x.rank > 1:
        (dim,) = dims
        other = (dim + 1) % x.rank
        if x.shape[other] == x.shape[dim]:
            order = list(range(x.rank))
            order[dim], order[other] = other, dim
            x = b.transpose(x, tuple(order))
    return b.reduce(x, kind, dims)


def _columns_first(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None and x.rank > 1:
            x = b.transpose(x, tuple(reversed(range(x.rank))))
        return right(b, x, dim, keepdim)

    return rule


def _inverted(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, dims: tuple[int, ...]) -> Value:
        order = [wrap_dim(d, x.rank) for d in dims]
        inverse = tuple(sorted(range(x.rank), key=order.__getitem__))
        return b.reshape(b.transpose(x, inverse), b.type.dims)

    return rule


def _first(dim: Any) -> int:
    return 0


AXES = mutants(
    "wrong axis",
    (
        "sum-next-axis",
        "the next axis summed, where it is as long",
        "sum",
        primitives("sum.dim_IntList", reduce=_next_axis),
    ),
    ("softmax-first-axis", "along the first axis", "softmax", arguments("_softmax.default", dim=_first)),
    ("cumprod-last-axis", "along the last axis", "cumprod", arguments("cumprod.default", dim=lambda dim: -1)),
    ("sort-first-axis", "along the first axis", "sort", arguments("sort.default sort.stable", dim=_first)),
    (
        "negative-dim-is-first",
        "negative dims taken for the first",
        "cumsum logcumsumexp nn.functional.glu",
        arguments("cumsum.default logcumsumexp.default glu.default", dim=lambda dim: max(dim, 0)),
    ),
    ("flip-one-dim", "only the first of the dims", "flip", arguments("flip.default", dims=lambda dims: dims[:1])),
    ("argmax-by-columns", "places counted column by column", "argmax", expansion("argmax.default", _columns_first)),
    ("rot90-backwards", "turned the other way", "rot90", arguments("rot90.default", k=lambda k: -k)),
    ("permute-inverted", "the inverse permutation", "permute", expansion("permute.default", _inverted)),
)


# Broadcasting


def _leading(right: Rule) -> Rule:
    """An operand of fewer dims lined up with the first dims, where the sizes allow it."""

    def rule(b: Expander, x: Any, y: Any, *rest: Any) -> Value:
        return right(b, *(_lined_up(b, v) for v in (x, y)), *rest)

    return rule


def _lined_up(b: Expander, x: Any) -> Any:
    shape = b.type.dims
    if not isinstance(x, Value) or not 0 < x.rank < len(shape):
        return x
    if any(size not in (1, wanted) for size, wanted in zip(x.shape, shape[: x.rank], strict=True)):
        return x
    return b.broadcast(x, shape, tuple(range(x.rank)))


def _first_row(right: Rule) -> Rule:
    """Operands with one row for all read their first element for all columns, too."""

    def rule(b: Expander, x: Any, y: Any, *rest: Any) -> Value:
        if isinstance(y, Value) and y.rank > 1 and y.shape[0] == 1 and y.shape[-1] not in (0, 1):
            y = b.broadcast(b.slice(y, y.rank - 1, 0, 1), y.shape)
        return right(b, x, y, *rest)

    return rule


BROADCASTING = mutants(
    "broadcasting",
    (
        "broadcast-leading",
        "vectors lined up with the first dims",
        "add mul",
        expansion("add.Tensor mul.Tensor", _leading),
    ),
    (
        "broadcast-one-element",
        "a row for all rows read as one element for all",
        "sub maximum",
        expansion("sub.Tensor maximum.default", _first_row),
    ),
    (
        "repeat-each",
        "each element repeated in place of the whole",
        "repeat tile",
        primitives("repeat.default", broadcast=lambda b, x, *, shape, dims: _interleaved(b, x, shape, dims)),
    ),
)


def _interleaved(b: Expander, x: Value, shape: Any, dims: tuple[int, ...]) -> Value:
    """[times, n] pairs as [n, times]: what is repeated lies inside."""
    turned = tuple(shape[d + 1] if d % 2 == 0 else shape[d - 1] for d in range(len(shape)))
    wide = b.broadcast(x, turned, tuple(d - 1 for d in dims))
    return b.reshape(wide, shape)


# Order


def _last_of_equals(b: Expander, x: Value, *, kind: str, dim: int) -> Value:
    size = x.shape[dim]
    place = b.arg_reduce(b.reverse(x, dims=(dim,)), kind=kind, dim=dim)
    return b.sub(const(b, place, size - 1), place) if isinstance(size, int) else b.arg_reduce(x, kind=kind, dim=dim)


def _turned_round(b: Expander, x: Value, *, dim: int, descending: bool) -> Any:
    """Descending order as ascending order backwards: of equals the last one comes first."""
    if not descending:
        return b.emit("sort", x, dim=dim, descending=False)
    values, places = b.emit("sort", x, dim=dim, descending=False)
    return b.reverse(values, dims=(dim,)), b.reverse(places, dims=(dim,))


def _smallest_first(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        values, places = right(b, x, k, dim, largest, sorted)
        if not sorted or not x.rank:
            return values, places
        at = (wrap_dim(dim, x.rank),)
        return b.reverse(values, dims=at), b.reverse(places, dims=at)

    return rule


ORDER = mutants(
    "order",
    (
        "argmax-last-of-equals",
        "the last of equal maxima",
        "argmax argmin",
        primitives("argmax.default argmin.default", arg_reduce=_last_of_equals),
    ),
    ("sort-unstable", "descending order is not stable", "sort", primitives("sort.stable", sort=_turned_round)),
    ("topk-backwards", "the smallest of the largest first", "topk", expansion("topk.default", _smallest_first)),
    (
        "searchsorted-from-the-other-side",
        "the other of two places beside an equal element",
        "searchsorted bucketize",
        arguments(
            "searchsorted.Tensor searchsorted.Scalar bucketize.Tensor bucketize.Scalar", right=lambda right: not right
        ),
    ),
)


# Masks


def _swapped_branches(right: Rule) -> Rule:
    return lambda b, condition, x, y: right(b, condition, y, x)


def _unmasked(right: Rule) -> Rule:
    return lambda b, x, mask, value: right(b, x, b.not_(b.cast(mask, dt.boolean)), value)


MASKS = mutants(
    "mask polarity",
    (
        "where-inverted",
        "the other branch",
        "where",
        expansion("where.self", _swapped_branches),
    ),
    (
        "masked-fill-inverted",
        "filled where the mask does not hold",
        "masked_fill",
        expansion("masked_fill.Scalar masked_fill.Tensor", _unmasked),
    ),
    (
        "masked-scatter-inverted",
        "written where the mask does not hold",
        "masked_scatter",
        expansion("masked_scatter.default", _unmasked),
    ),
    (
        "attention-not-causal",
        "is_causal not looked at",
        "nn.functional.scaled_dot_product_attention",
        arguments("_scaled_dot_product_flash_attention_for_cpu.default", is_causal=lambda _: False),
    ),
)

MUTANTS = (*OFF_BY_ONE, *AXES, *BROADCASTING, *ORDER, *MASKS)
