"""Reductions and the matrix product in TOSA."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter
from torchstone.compiler.lowering.tosa.summation import accurate_sum, fill
from torchstone.compiler.lowering.tosa.table import TosaRule, names
from torchstone.compiler.transforms.legalizations.reductions import is_batched_matmul

_RUN = 16  # products added up one after the other
_LARGEST = 3.4028234663852886e38
_NUMBERS = names("float32", "int32", "int64")
_KINDS = {
    "sum": ("reduce_sum", _NUMBERS), "prod": ("reduce_product", names("float32")), "max": ("reduce_max", _NUMBERS),
    "min": ("reduce_min", _NUMBERS), "and": ("reduce_all", names("bool")), "or": ("reduce_any", names("bool")),
}  # fmt: skip


def _takes_reduce(op: Operation) -> str | None:
    kind, dims, (value,) = op.attributes["kind"], op.attributes["dims"], op.values
    if len(dims) != 1 and not (dims and _is_float_sum(op)):
        return "flat.reduce: TOSA reduces one dim at a time"
    if value.dtype.name not in _KINDS[kind][1]:
        return f"flat.reduce: TOSA has no {kind} of {value.dtype.name}"
    return None


def _is_float_sum(op: Operation) -> bool:
    return op.attributes["kind"] == "sum" and op.result.dtype.is_float


def _reduce(e: TosaEmitter, op: Operation) -> Handle:
    x = e.full(next(op.values))
    if _is_float_sum(op):
        return accurate_sum(e, x, op.attributes["dims"])
    (dim,) = op.attributes["dims"]
    kept = [1 if d == dim else size for d, size in enumerate(e.shape(x))]
    kind = op.attributes["kind"]

    def reduce(name: str, x: Handle) -> Handle:
        return getattr(e.tosa, name)(x, dim, results=[e.type(kept, x.type.element_type)])

    out = reduce(_KINDS[kind][0], x)
    if kind in ("max", "min") and op.result.dtype.is_float:
        out = _infinite(e, kind, x, out, reduce)
    return e.reshape(out, op.result.shape)


def _infinite(e: TosaEmitter, kind: str, x: Handle, out: Handle, reduce: Callable[[str, Handle], Handle]) -> Handle:
    """Make up for upstream's lowering, which starts a maximum at the least finite float, where it should at -inf.

    What comes out as that float is -inf, unless some element is larger than -inf.
    """
    start, least = (-_LARGEST, -inf) if kind == "max" else (_LARGEST, inf)
    bound = e.like(x, least)
    some = reduce("reduce_any", e.compare("greater", *((x, bound) if kind == "max" else (bound, x))))
    at_start = e.compare("equal", out, e.like(x, start))
    return e.select(e.map("logical_and", at_start, e.map("logical_not", some)), e.like(x, least), out)


def _takes_contract(op: Operation) -> str | None:
    a, b = op.values
    if not is_batched_matmul(a, b, **op.attributes):
        return "flat.contract: TOSA multiplies [B, M, K] with [B, K, N] only"
    return None


def _contract(e: TosaEmitter, op: Operation) -> Handle:
    """[B, M, K] x [B, K, N]; a long K in runs of a bounded length, whose products are batches that are then summed."""
    a, b = (e.full(v) for v in op.values)
    (batch, height, length), width = e.shape(a), e.shape(b)[2]
    element = a.type.element_type
    zero = e.constant(0.0, [1], element)

    def matmul(a: Handle, b: Handle, count: int) -> Handle:
        return e.tosa.matmul(e.type([count, height, width], element), a, b, zero, zero)

    if length <= 2 * _RUN:
        return matmul(a, b, batch)
    count = -(-length // _RUN)
    a, b = fill(e, a, 2, count * _RUN), fill(e, b, 1, count * _RUN)
    runs = e.transpose(e.reshape(a, [batch, height, count, _RUN]), [0, 2, 1, 3])
    a = e.reshape(runs, [batch * count, height, _RUN])
    b = e.reshape(b, [batch * count, _RUN, width])
    products = e.reshape(matmul(a, b, batch * count), [batch, count, height * width])
    return e.reshape(accurate_sum(e, products, (1,)), [batch, height, width])


ROWS = (
    TosaRule("reduce", frozenset(), _reduce, _takes_reduce),
    TosaRule("contract", names("float32"), _contract, _takes_contract),
)
