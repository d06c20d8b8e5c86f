"""Reductions and contractions in StableHLO. 16-bit floats accumulate in float32, as the primitives say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.ir import DType, Operation
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter
from torchstone.compiler.lowering.stablehlo.table import BOOL, COMPLEX, FLOAT, INT, Rule
from torchstone.compiler.transforms.legalizations.ordering import identity

# kind -> the op of the body.
COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or"}
_NUMBERS = INT | FLOAT


def start(kind: str, dtype: DType) -> Any:
    """Return what a reduction of no elements gives."""
    return {"and": True, "or": False}[kind] if dtype.is_bool else identity(kind, dtype)


def combine(e: StablehloEmitter, kind: str) -> Callable[[Handle, Handle], list[Handle]]:
    """Return the body of a reduction."""
    return lambda a, b: [e.map(COMBINE[kind], a, b)]


def accumulated(dtype: DType) -> DType:
    return dt.float32 if dtype.is_half else dtype


def _takes_reduce(op: Operation) -> str | None:
    (x,), kind = op.values, op.attributes["kind"]
    dtypes = BOOL if kind in ("and", "or") else _NUMBERS if kind in ("max", "min") else _NUMBERS | COMPLEX
    return None if x.dtype.name in dtypes else f"flat.reduce: our StableHLO has no {kind} of {x.dtype}"


def _reduce(e: StablehloEmitter, op: Operation) -> Handle:
    (value,), kind, dims = op.values, op.attributes["kind"], op.attributes["dims"]
    if not dims:  # upstream's lowering to linalg lacks this one
        return e.values[id(value)]
    wide = accumulated(value.dtype)
    x = e.convert(e.values[id(value)], wide)
    made = e.create(
        "reduce", [e.type(op.result.shape, wide)], [x, e.constant(start(kind, wide), (), wide)], 1,
        dimensions=e.integers(dims),
    )  # fmt: skip
    e.body(made, [e.element(wide)] * 2, combine(e, kind))
    return e.convert(made.result, op.result.dtype)


def _arg_reduce(e: StablehloEmitter, op: Operation) -> Handle:
    """Pairs of an element and its index; of equals the smaller index, of a NaN and a number the NaN."""
    (value,), dim = op.values, op.attributes["dim"]
    largest, dtype, x = op.attributes["kind"] == "argmax", value.dtype, e.values[id(value)]
    index = e.broadcast(e.count(value.shape[dim]), value.shape, (dim,), dt.int64)
    least = e.constant(identity("max" if largest else "min", dtype), (), dtype)
    last = e.convert(e.size(value.shape[dim]), dt.int64)
    made = e.create(
        "reduce", [e.type(op.result.shape, dtype), e.of(op.result)], [x, index, least, last], 1,
        dimensions=e.integers((dim,)),
    )  # fmt: skip

    def better(a: Handle, i: Handle, b: Handle, j: Handle) -> Sequence[Handle]:
        ahead, same = e.compare("GT" if largest else "LT", a, b), e.compare("EQ", a, b)
        if dtype.is_float:
            a_nan, b_nan = (e.compare("NE", v, v) for v in (a, b))
            ahead = e.map("or", ahead, e.map("and", a_nan, e.map("not", b_nan)))
            same = e.map("or", same, e.map("and", a_nan, b_nan))
        first = e.map("or", ahead, e.map("and", same, e.compare("LT", i, j)))
        return [e.select(first, a, b), e.select(first, i, j)]

    kinds = [e.element(dtype), e.element(dt.int64)]
    e.body(made, [*kinds, *kinds], better)
    return made.results[1]


def _contract(e: StablehloEmitter, op: Operation) -> Handle:
    """Result dims: batch, the rest of a, the rest of b, as the primitive has them."""
    (x, y), a, wide = op.values, op.attributes, accumulated(op.result.dtype)
    dims = e.attribute(
        f"#stablehlo.dot<lhs_batching_dimensions = {list(a['a_batch'])}, "
        f"rhs_batching_dimensions = {list(a['b_batch'])}, lhs_contracting_dimensions = {list(a['a_sum'])}, "
        f"rhs_contracting_dimensions = {list(a['b_sum'])}>"
    )
    kind = e.type(op.result.shape, wide)
    out = e.emit("dot_general", kind, e.values[id(x)], e.values[id(y)], dot_dimension_numbers=dims)
    return e.convert(out, op.result.dtype)


ROWS = (
    Rule("reduce", BOOL | _NUMBERS | COMPLEX, _reduce, _takes_reduce),
    Rule("arg_reduce", _NUMBERS, _arg_reduce),
    Rule("contract", _NUMBERS | COMPLEX, _contract),
)
