"""Margin losses and their backward ops: aten/src/ATen/native/LossMulti{,Label}Margin.cpp. A NaN adds nothing there."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, product
from torchstone.compiler.transforms.expansions.common import const, pointwise, stepwise, tensor
from torchstone.compiler.transforms.expansions.indexing.index import bound, check_all, checked, places, read, zeros
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands

_NONE, _MEAN, _SUM = 0, 1, 2


def _matrix(b: Expander, x: Value) -> Value:
    return x if x.rank == 2 else b.reshape(x, (1, *x.shape) if x.rank else (1, 1))


def _reduced(b: Expander, rows: Value, classes: Dim, reduction: int) -> Value:
    """Sums by row over the number of classes, and over the rows if so wanted, in the result's dtype."""
    out = b.div(rows, b.broadcast(tensor(b, classes, rows.dtype), rows.shape, ()))
    if reduction != _NONE:
        out = b.reduce(out, "sum", (0,))
    if reduction == _MEAN:
        out = b.div(out, tensor(b, rows.shape[0], rows.dtype))
    return b.cast(b.reshape(out, b.type.dims), b.type.dtype)


def _share(b: Expander, like: Value, reduction: int) -> Value:
    """What each term of the sum counts, spread over ``like`` [rows, classes]."""
    rows, classes = like.shape
    divisor = tensor(b, classes, like.dtype)
    if reduction == _MEAN:
        divisor = b.mul(divisor, tensor(b, rows, like.dtype))
    return b.broadcast(b.div(tensor(b, 1, like.dtype), divisor), like.shape, ())


def _times_gradient(b: Expander, out: Value, grad: Value, reduction: int) -> Value:
    """``out`` [rows, classes] times the gradient of its row, or of the loss: 0 times NaN is NaN, as in eager."""
    shape, dims = ((out.shape[0],), (0,)) if reduction == _NONE else ((), ())
    grad = b.broadcast(b.reshape(b.cast(grad, out.dtype), shape), out.shape, dims)
    return b.cast(b.reshape(b.mul(out, grad), b.type.dims), b.type.dtype)


# multi_margin_loss: one target class a row.


class _Margins:
    """For each row and class but the target: margin - x[target] + x, where it is positive, and the target's weight."""

    def __init__(self, b: Expander, x: Value, target: Value, margin: Any, weight: Value | None) -> None:
        x = b.cast(_matrix(b, x), opmath(x.dtype))
        rows, classes = x.shape
        target = checked(b, b.reshape(target, (rows,)), classes, "target out of range")
        row = b.iota(size=rows, dtype=dt.int64)
        chosen = b.broadcast(read(b, x, [row, target], [0, 1]), x.shape, (0,))
        self.margin = b.add(b.sub(const(b, x, margin), chosen), x)
        column = b.broadcast(b.iota(size=classes, dtype=dt.int64), x.shape, (1,))
        self.is_target = b.eq(column, b.broadcast(target, x.shape, (0,)))
        self.counts = b.and_(b.gt(self.margin, const(b, x, 0)), b.not_(self.is_target))
        self.weight = None
        if weight is not None:
            chosen = read(b, b.cast(b.reshape(weight, (classes,)), x.dtype), [target], [0])
            self.weight = b.broadcast(chosen, x.shape, (0,))

    def weighted(self, b: Expander, term: Value) -> Value:
        """The term where it counts, 0 elsewhere."""
        term = term if self.weight is None else b.mul(term, self.weight)
        return b.select(self.counts, term, const(b, term, 0))


@expands("aten.multi_margin_loss.default")
def multi_margin_loss(
    b: Expander, x: Value, target: Value, p: Any = 1, margin: Any = 1, weight: Value | None = None,
    reduction: int = _MEAN,
) -> Value:  # fmt: skip
    m = _Margins(b, x, target, margin, weight)
    term = m.margin if p == 1 else b.mul(m.margin, m.margin)
    return _reduced(b, b.reduce(m.weighted(b, term), "sum", (1,)), term.shape[1], reduction)


@expands("aten.multi_margin_loss_backward.default")
def multi_margin_loss_backward(
    b: Expander, grad: Value, x: Value, target: Value, p: Any, margin: Any, weight: Value | None = None,
    reduction: int = _MEAN,
) -> Value:  # fmt: skip
    m = _Margins(b, x, target, margin, weight)
    share = _share(b, m.margin, reduction)
    slope = m.weighted(b, share if p == 1 else b.mul(b.mul(const(b, share, 2), share), m.margin))
    total = b.broadcast(b.reduce(slope, "sum", (1,)), slope.shape, (0,))
    return _times_gradient(b, b.select(m.is_target, b.neg(total), slope), grad, reduction)


# multilabel_margin_loss: the target classes of a row come first, up to a -1.


def _labels(b: Expander, target: Value, classes: Dim) -> tuple[Value, Value]:
    """The labels [rows, classes] and whether each counts: those before the first -1."""
    target = b.cast(_matrix(b, target), dt.int64)
    inside = b.and_(b.ge(target, const(b, target, -1)), b.lt(target, bound(b, target, classes)))
    check_all(b, inside, "argument #2 'target' is out of range")
    ended = b.scan(b.cast(b.lt(target, const(b, target, 0)), dt.int64), kind="sum", dim=1)
    return target, b.eq(ended, const(b, ended, 0))


def _names(b: Expander, target: Value) -> Value:
    """Whether a label names a class: [rows, classes, labels]."""
    shape = (*target.shape, target.shape[1])
    column = b.broadcast(b.iota(size=target.shape[1], dtype=dt.int64), shape, (1,))
    return b.eq(column, b.broadcast(target, shape, (0, 2)))


def _pairs(b: Expander, x: Value, target: Value, valid: Value, is_target: Value) -> Value:
    """1 - x[label] + x[class] for each [row, class, label]; where it does not count, 0."""
    shape = (*x.shape, target.shape[1])
    index = b.select(valid, target, const(b, target, 0))
    chosen = read(b, x, places(b, index, 1), [0, 1])
    margin = b.sub(const(b, chosen, 1), chosen)
    margin = b.add(b.broadcast(margin, shape, (0, 2)), b.broadcast(x, shape, (0, 1)))
    counts = b.and_(b.broadcast(valid, shape, (0, 2)), b.not_(b.broadcast(is_target, shape, (0, 1))))
    counts = b.and_(counts, b.gt(margin, const(b, margin, 0)))
    return b.select(counts, margin, const(b, margin, 0))


@expands("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(b: Expander, x: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    """The loss, and which classes are targets."""
    shape = target.shape
    x = b.cast(_matrix(b, x), opmath(x.dtype))
    target, valid = _labels(b, target, x.shape[1])
    named = _names(b, target)
    is_target = b.reduce(b.and_(named, b.broadcast(valid, named.shape, (0, 2))), "or", (2,))
    loss = b.reduce(_pairs(b, x, target, valid, is_target), "sum", (1, 2))
    return _reduced(b, loss, x.shape[1], reduction), b.reshape(b.cast(is_target, b.type.dtype), shape)


@expands("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    b: Expander, grad: Value, x: Value, target: Value, reduction: int, is_target: Value
) -> Value:
    """Each pair that counts moves its class up and its label down."""
    x = b.cast(_matrix(b, x), opmath(x.dtype))
    target, valid = _labels(b, target, x.shape[1])
    given = _matrix(b, is_target)
    pairs = _pairs(b, x, target, valid, b.ne(given, const(b, given, 0)))
    hits = b.cast(b.gt(pairs, const(b, pairs, 0)), x.dtype)
    by_label = b.broadcast(b.reduce(hits, "sum", (1,)), hits.shape, (0, 2))
    down = b.select(_names(b, target), by_label, const(b, hits, 0))
    moved = b.sub(b.reduce(hits, "sum", (2,)), b.reduce(down, "sum", (2,)))
    return _times_gradient(b, b.mul(moved, _share(b, moved, reduction)), grad, reduction)


@expands("aten.soft_margin_loss_backward.default")
def soft_margin_loss_backward(b: Expander, gradient: Value, x: Value, y: Value, reduction: int) -> Value:
    """-gradient y z / (1 + z) with z = e**(-x y), over the number of elements for the mean: Loss.cpp, step by step.

    PyTorch's decomposition subtracts 1 from a sigmoid, which cancels. In z eager negates y in its own dtype: integers
    wrap.
    """
    count = tensor(b, product(x.shape) if reduction == _MEAN else 1, opmath(b.type.dtype))
    scale = b.neg(b.div(tensor(b, 1, count.dtype), count))

    def step(g: Value, x: Value, y: Value, negated: Value, scale: Value) -> Value:
        z = b.exp(b.mul(negated, x))
        return b.mul(b.div(b.mul(b.mul(y, z), scale), b.add(z, const(b, z, 1))), g)

    return stepwise(b, step, gradient, x, y, b.neg(y), scale)


@expands("aten.smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(b: Expander, grad: Value, x: Value, target: Value, reduction: int, beta: Any) -> Value:
    """The gradient's share times (x - target) / beta, within [-1, 1]. PyTorch's decomposition has 0 for NaN."""
    count = product(b.type.dims) if reduction == _MEAN else 1

    def formula(grad: Value, x: Value, target: Value) -> Value:
        apart = b.sub(x, target)
        share = b.broadcast(b.div(tensor(b, 1, x.dtype), tensor(b, count, x.dtype)), x.shape, ())
        between = b.div(b.mul(b.mul(share, apart), grad), const(b, x, beta))
        below = b.le(apart, const(b, x, -beta))
        slope = b.select(b.ge(apart, const(b, x, beta)), b.mul(share, grad), between)
        return b.select(below, b.neg(b.mul(share, grad)), slope)

    return pointwise(b, formula, grad, x, target)


@expands("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    b: Expander, grad: Value, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int,
    total_weight: Value,
) -> Value:  # fmt: skip
    """Minus the gradient at the target class, times its weight, over ``total_weight`` for the mean; 0 at all others.

    PyTorch's decomposition multiplies the zeros, too: of an infinite gradient, or weight, they become NaN.
    """
    if 0 in x.shape:
        return zeros(b, b.type.dims, b.type.dtype)
    classes = min(1, x.rank - 1)  # which dim they are in
    others = tuple(dim for dim in range(x.rank) if dim != classes)
    wide = opmath(x.dtype)
    target = b.reshape(target, ()) if x.rank == 1 else b.fit(target, tuple(x.shape[dim] for dim in others))
    ignored = b.eq(target, const(b, target, ignore_index))
    index = b.select(ignored, const(b, target, 0), target)
    index = checked(b, index, x.shape[classes], "target out of bounds")
    dims = others if reduction == _NONE and x.rank > 1 else ()
    slope = b.broadcast(b.reshape(b.cast(grad, wide), tuple(x.shape[dim] for dim in dims)), x.shape, dims)
    if reduction == _MEAN:
        slope = b.div(slope, b.broadcast(b.reshape(b.cast(total_weight, wide), ()), x.shape, ()))
    if weight is not None:
        slope = b.mul(slope, b.broadcast(b.cast(weight, wide), x.shape, (classes,)))
    column = b.broadcast(b.iota(size=x.shape[classes], dtype=dt.int64), x.shape, (classes,))
    hit = b.and_(b.eq(column, b.broadcast(index, x.shape, others)), b.broadcast(b.not_(ignored), x.shape, others))
    return b.cast(b.select(hit, b.neg(slope), const(b, slope, 0)), b.type.dtype)
