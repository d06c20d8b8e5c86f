"""Reductions and the matrix product in TOSA."""

from __future__ import annotations

from math import prod

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter
from torchstone.compiler.lowering.tosa.table import TosaRule, names
from torchstone.compiler.transforms.legalizations.reductions import is_batched_matmul

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
    x, dims = e.full(next(op.values)), list(op.attributes["dims"])
    shape, out = e.shape(x), op.result.shape
    long = [d for d in dims if shape[d] != 1]
    if len(dims) > 1 and any(shape[d] != 1 for d in range(min(long, default=0), max(long, default=0)) if d not in dims):
        # Several dims are summed as one, which rounds once: they have to be neighbours.
        kept = [d for d in range(len(shape)) if d not in dims]
        x = e.transpose(x, [*kept, *dims])
        shape, long = e.shape(x), list(range(len(kept), len(shape)))
    first, last = min(long, default=dims[0]), max(long, default=dims[0])
    if len(dims) > 1:
        x = e.reshape(x, [*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]])
    sizes = e.shape(x)
    sizes[first] = 1
    name = _KINDS[op.attributes["kind"]][0]
    return e.reshape(getattr(e.tosa, name)(x, first, results=[e.type(sizes, x.type.element_type)]), out)


def _takes_contract(op: Operation) -> str | None:
    a, b = op.values
    if not is_batched_matmul(a, b, **op.attributes):
        return "flat.contract: TOSA multiplies [B, M, K] with [B, K, N] only"
    return None


def _contract(e: TosaEmitter, op: Operation) -> Handle:
    """[B, M, K] x [B, K, N]."""
    a, b = (e.full(v) for v in op.values)
    zero = e.constant(0.0, [1], a.type.element_type)
    return e.tosa.matmul(e.type(op.result.shape, a.type.element_type), a, b, zero, zero)


ROWS = (
    TosaRule("reduce", frozenset(), _reduce, _takes_reduce),
    TosaRule("contract", names("float32"), _contract, _takes_contract),
)
