"""``reduce``, ``arg_reduce`` and ``contract``: loop nests over accumulators wide enough for eager's accuracy.

Eager adds float32 in many short partial sums; one long float32 sum would lose digits that it keeps. So float32 and
float16 are accumulated in float64, and float64 sums carry the rounding error along (Neumaier).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.linalg import contraction
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter
from torchstone.compiler.lowering.linalg.nest import LoopNest
from torchstone.compiler.lowering.linalg.scalars import Scalar
from torchstone.compiler.lowering.linalg.views import Index, loop, loops


@dataclass(frozen=True, slots=True)
class Accumulator:
    """``start`` are the initial memory elements, ``step(accumulated, scalar)`` the next ones, ``finish`` the result."""

    start: Callable[[], list[Any]]
    step: Callable[[list[Any], Scalar], list[Any]]
    finish: Callable[[list[Any]], Scalar]


def _double(value: float) -> Any:
    return s.constant(s.floating(64), value)


def _wide(dtype: DType, x: Scalar) -> Scalar:
    return s.widen(dtype, x, to=64)


def _sum(dtype: DType) -> Accumulator:
    if not (dtype.is_float or dtype.is_complex):
        element = s.element(dtype)
        return Accumulator(
            lambda: [s.constant(element, 0)], lambda acc, x: [mlir.arith.addi(acc[0], x)], lambda acc: acc[0]
        )
    parts = 2 if dtype.is_complex else 1
    if dtype.real.bits < 64:

        def step(acc: list[Any], x: Scalar) -> list[Any]:
            wide = _wide(dtype, x)
            terms = wide if isinstance(wide, tuple) else (wide,)
            return [_add(a, term) for a, term in zip(acc, terms, strict=True)]

        return Accumulator(lambda: [_double(0)] * parts, step, lambda acc: s.narrow(dtype, _join(acc), from_=64))
    return _compensated(parts)


def _join(parts: Sequence[Any]) -> Scalar:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _add(a: Any, b: Any) -> Any:
    # The order of the additions is free: the accumulator has digits to spare, and this lets LLVM use vectors.
    return mlir.arith.AddFOp(a, b, fastmath=mlir.ir.Attribute.parse("#arith.fastmath<reassoc>")).result


def _compensated(parts: int) -> Accumulator:
    """Sum float64, and apart the error of each addition: (a - (t - b)) + (x - b) with t = a + x, b = t - a."""
    arith = mlir.arith

    def step(acc: list[Any], x: Scalar) -> list[Any]:
        terms = x if isinstance(x, tuple) else (x,)
        totals, errors = [], []
        for total, error, term in zip(acc[:parts], acc[parts:], terms, strict=True):
            new = arith.addf(total, term)
            taken = arith.subf(new, total)
            lost = arith.addf(arith.subf(total, arith.subf(new, taken)), arith.subf(term, taken))
            totals.append(new)
            errors.append(arith.addf(error, lost))
        return totals + errors

    def finish(acc: list[Any]) -> Scalar:
        out = []
        for total, error in zip(acc[:parts], acc[parts:], strict=True):
            # With an infinity in the sum the error is NaN and means nothing.
            finite = s.compare_float("eq", arith.subf(error, error), _double(0))
            out.append(arith.select(finite, arith.addf(total, error), total))
        return _join(out)

    return Accumulator(lambda: [_double(0)] * (2 * parts), step, finish)


def _prod(dtype: DType) -> Accumulator:
    if dtype.is_complex:

        def step(acc: list[Any], x: Scalar) -> list[Any]:
            (a, b), (c, d) = acc, _wide(dtype, x)
            m = mlir.arith.mulf
            return [mlir.arith.subf(m(a, c), m(b, d)), mlir.arith.addf(m(a, d), m(b, c))]

        return Accumulator(lambda: [_double(1), _double(0)], step, lambda acc: s.narrow(dtype, tuple(acc), from_=64))
    if dtype.is_float:
        return Accumulator(
            lambda: [_double(1)],
            lambda acc, x: [mlir.arith.mulf(acc[0], _wide(dtype, x))],
            lambda acc: s.narrow(dtype, acc[0], from_=64),
        )
    element = s.element(dtype)
    return Accumulator(
        lambda: [s.constant(element, 1)], lambda acc, x: [mlir.arith.muli(acc[0], x)], lambda acc: acc[0]
    )


def _extreme(dtype: DType, kind: str) -> Accumulator:
    start = lambda: [s.constant(compute_element(dtype), lowest(dtype, kind))]  # noqa: E731 - three of one form
    if dtype.is_float:
        name = "maximumf" if kind == "max" else "minimumf"
        return Accumulator(
            start,
            lambda acc, x: [getattr(mlir.arith, name)(acc[0], s.widen(dtype, x))],
            lambda acc: s.narrow(dtype, acc[0]),
        )
    name = f"{kind}{'si' if dtype.is_signed else 'ui'}"
    return Accumulator(start, lambda acc, x: [getattr(mlir.arith, name)(acc[0], x)], lambda acc: acc[0])


def compute_element(dtype: DType) -> Any:
    """Return the type in which elements of a dtype are compared."""
    return s.floating(32) if dtype.is_half else s.element(dtype)


def lowest(dtype: DType, kind: str) -> float | int:
    """Return the value that every other one beats: -inf or the minimum for max and argmax, else the opposite."""
    largest = not kind.endswith("max")
    if dtype.is_float:
        return float("inf") if largest else float("-inf")
    if not dtype.is_signed:
        return (1 << dtype.bits) - 1 if largest else 0
    return (1 << (dtype.bits - 1)) - 1 if largest else -(1 << (dtype.bits - 1))


def _logical(dtype: DType, kind: str) -> Accumulator:
    name = "andi" if kind == "and" else "ori"
    return Accumulator(
        lambda: [s.constant(s.integer(8), int(kind == "and"))],
        lambda acc, x: [getattr(mlir.arith, name)(acc[0], s.store(dtype, x))],
        lambda acc: s.load(dtype, acc[0]),
    )


def accumulator(kind: str, dtype: DType) -> Accumulator:
    """Return how elements of a dtype are combined."""
    if kind == "sum":
        return _sum(dtype)
    if kind == "prod":
        return _prod(dtype)
    return _extreme(dtype, kind) if kind in ("max", "min") else _logical(dtype, kind)


def _accumulate(
    e: LinalgEmitter, nest: LoopNest, acc: Accumulator, shape: Sequence[Dim], where: Index, scalar: Callable[[], Scalar]
) -> list[Any]:
    """Run the nest over accumulators of that shape; no iteration at all leaves them as they start."""
    initial = [e.fill(shape, raw) for raw in acc.start()]
    if 0 in nest.sizes:
        return initial
    return nest.build([(t, where) for t in initial], lambda old: acc.step(old, scalar()))


def _finish(e: LinalgEmitter, accumulated: list[Any], result: Value, finish: Callable[[list[Any]], Scalar]) -> Any:
    """Turn accumulators into the elements of the result, in place when they already are."""
    element = s.element(result.dtype)
    if len(accumulated) == 1 and accumulated[0].type.element_type == element:
        return accumulated[0]
    shape = result.shape
    identity = loops(len(shape))
    nest = LoopNest(e, shape)
    nest.extra(accumulated)
    return nest.build([(e.empty(shape, element), identity)], lambda _: [s.store(result.dtype, finish(nest.extras))])[0]


def reduce(e: LinalgEmitter, op: Operation) -> list[Any]:
    (x,) = op.values
    dims = op.attributes["dims"]
    acc = accumulator(op.attributes["kind"], x.dtype)
    if 0 in op.result.shape:
        return [e.empty(op.result.shape, s.element(op.result.dtype))]
    identity = loops(x.rank)
    where = tuple(c for d, c in enumerate(identity) if d not in dims)
    nest = LoopNest(e, x.shape, dims)
    nest.read(x, identity)
    out = _accumulate(e, nest, acc, op.result.shape, where, lambda: nest.scalar(x, identity))
    return [_finish(e, out, op.result, acc.finish)]


def arg_reduce(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Keep the best element and where it was; NaN beats everything but an earlier NaN."""
    arith = mlir.arith
    (x,) = op.values
    kind, dim = op.attributes["kind"], op.attributes["dim"]
    shape = op.result.shape
    identity = loops(x.rank)
    where = tuple(c for d, c in enumerate(identity) if d != dim)
    if 0 in shape:
        return [e.empty(shape, s.integer(64))]
    nest = LoopNest(e, x.shape, (dim,))
    nest.read(x, identity)

    def body(old: list[Any]) -> list[Any]:
        best, at = old
        value = nest.scalar(x, identity)
        if x.dtype.is_float:
            value = s.widen(x.dtype, value)
            better = s.compare_float("gt" if kind == "argmax" else "lt", value, best)
            seen = s.is_nan(best)
            better = arith.ori(better, arith.andi(s.is_nan(value), arith.xori(seen, s.constant(s.integer(1), 1))))
        else:
            relation = "gt" if kind == "argmax" else "lt"
            better = s.compare_int(relation if x.dtype.is_signed else f"u{relation}", value, best)
        here = nest.number(identity[dim])
        return [arith.select(better, value, best), arith.select(better, here, at)]

    start = [s.constant(compute_element(x.dtype), lowest(x.dtype, kind)), s.constant(s.integer(64), 0)]
    return nest.build([(e.fill(shape, raw), where) for raw in start], body)[1:]


def contract(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Loops: batch, rest of a, summed, rest of b: the innermost one runs along rows of b and of the result."""
    a, b = op.values
    at = {name: op.attributes[name] for name in ("a_batch", "b_batch", "a_sum", "b_sum")}
    if 0 in op.result.shape:
        return [e.empty(op.result.shape, s.element(op.result.dtype))]
    free_a = [d for d in range(a.rank) if d not in (*at["a_batch"], *at["a_sum"])]
    free_b = [d for d in range(b.rank) if d not in (*at["b_batch"], *at["b_sum"])]
    order_a = [*at["a_batch"], *free_a, *at["a_sum"]]
    loop_of_a = {d: i for i, d in enumerate(order_a)}
    first_sum = len(at["a_batch"]) + len(free_a)
    loop_of_b = {d: i for i, d in enumerate(at["b_batch"])}
    loop_of_b |= {d: first_sum + i for i, d in enumerate(at["b_sum"])}
    loop_of_b |= {d: len(order_a) + i for i, d in enumerate(free_b)}
    sizes = [*(a.shape[d] for d in order_a), *(b.shape[d] for d in free_b)]
    summed = range(first_sum, len(order_a))
    index_a = tuple(loop(loop_of_a[d]) for d in range(a.rank))
    index_b = tuple(loop(loop_of_b[d]) for d in range(b.rank))
    if (result := contraction.tiled(e, op, index_a, index_b, sizes, summed)) is not None:
        return [result]
    nest = LoopNest(e, sizes, summed)
    nest.read(a, index_a)
    nest.read(b, index_b)
    acc = _products(a.dtype)
    where = tuple(loop(d) for d in range(len(sizes)) if d not in summed)
    pair = lambda: (nest.scalar(a, index_a), nest.scalar(b, index_b))  # noqa: E731 - read inside the body only
    out = _accumulate(e, nest, acc, op.result.shape, where, pair)
    return [_finish(e, out, op.result, acc.finish)]


def _products(dtype: DType) -> Accumulator:
    """Accumulate products: in float64, but for 16-bit floats, whose products float32 holds exactly."""
    arith = mlir.arith
    if dtype.is_complex:

        def complex_step(acc: list[Any], xy: Scalar) -> list[Any]:
            (a, b), (c, d) = (_wide(dtype, v) for v in xy)
            real = arith.subf(arith.mulf(a, c), arith.mulf(b, d))
            imaginary = arith.addf(arith.mulf(a, d), arith.mulf(b, c))
            return [arith.addf(acc[0], real), arith.addf(acc[1], imaginary)]

        return Accumulator(
            lambda: [_double(0), _double(0)], complex_step, lambda acc: s.narrow(dtype, tuple(acc), from_=64)
        )
    if dtype.is_float:
        bits = 32 if dtype.is_half else 64

        def step(acc: list[Any], xy: Scalar) -> list[Any]:
            x, y = (s.widen(dtype, v, to=bits) for v in xy)
            return [_add(acc[0], arith.mulf(x, y))]

        return Accumulator(
            lambda: [s.constant(s.floating(bits), 0)], step, lambda acc: s.narrow(dtype, acc[0], from_=bits)
        )
    element = s.element(dtype)
    return Accumulator(
        lambda: [s.constant(element, 0)],
        lambda acc, xy: [arith.addi(acc[0], arith.muli(*xy))],
        lambda acc: acc[0],
    )
