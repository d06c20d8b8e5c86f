"""Gather, scatter and sort in StableHLO."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import DType, Operation, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter
from torchstone.compiler.lowering.stablehlo.table import ANY, BOOL, COMPLEX, FLOAT, INT, Rule

# kind of scatter -> the op of the body; a set gives the update.
_COMBINE = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _places(e: StablehloEmitter, places: list[Value]) -> Handle:
    """Return index tensors of one shape as one, with a last dim for which of them."""
    shape = places[0].shape
    parts = [e.broadcast(e.values[id(p)], (*shape, 1), range(len(shape)), p.dtype) for p in places]
    kind = e.type((*shape, len(parts)), places[0].dtype)
    return e.emit("concatenate", kind, *parts, dimension=e.integer(len(shape))) if len(parts) > 1 else parts[0]


def _gather(e: StablehloEmitter, op: Operation) -> Handle:
    """An index out of range reads the nearest element, in both languages."""
    (x, *places), dims = op.values, op.attributes["dims"]
    rank = places[0].rank
    offsets = list(range(rank, op.result.rank))
    numbers = e.attribute(
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {sorted(dims)}, "
        f"start_index_map = {list(dims)}, index_vector_dim = {rank}>"
    )
    sizes = [1 if d in dims else size for d, size in enumerate(x.shape)]
    return e.emit(
        "gather", e.of(op.result), e.values[id(x)], _places(e, places),
        dimension_numbers=numbers, slice_sizes=e.integers(sizes),
    )  # fmt: skip


def _takes_gather(op: Operation) -> str | None:
    x = next(op.values)
    nothing = any(x.shape[d] == 0 for d in op.attributes["dims"])
    if nothing:
        return "flat.gather: StableHLO reads nothing from a dim without elements"
    known = all(isinstance(size, int) for size in x.shape)
    return None if known else f"flat.gather: our StableHLO reads from tensors of known sizes only, got {x.type}"


def _scatter(e: StablehloEmitter, op: Operation) -> Handle:
    """An update out of range is dropped, in both languages. In which order others are made is up to the consumer."""
    (x, updates, *places), dims, kind = op.values, op.attributes["dims"], op.attributes["kind"]
    rank = places[0].rank
    numbers = e.attribute(
        f"#stablehlo.scatter<update_window_dims = {list(range(rank, updates.rank))}, "
        f"inserted_window_dims = {sorted(dims)}, scatter_dims_to_operand_dims = {list(dims)}, "
        f"index_vector_dim = {rank}>"
    )
    operands = [e.values[id(x)], _places(e, places), e.values[id(updates)]]
    made = e.create("scatter", [e.of(op.result)], operands, 1, scatter_dimension_numbers=numbers)
    e.body(made, [e.element(x.dtype)] * 2, lambda old, new: [new if kind == "set" else e.map(_COMBINE[kind], old, new)])
    return made.result


def _takes_scatter(op: Operation) -> str | None:
    kind, dtype = op.attributes["kind"], op.result.dtype
    dtypes = {"set": ANY, "max": INT | FLOAT, "min": INT | FLOAT}.get(kind, INT | FLOAT | COMPLEX)
    return None if dtype.name in dtypes else f"flat.scatter: our StableHLO has no {kind} of {dtype}"


def _sort(e: StablehloEmitter, op: Operation) -> list[Handle]:
    """Stable, of pairs of an element and its index; NaN is the largest of all, and zeros are equal."""
    (value,), dim, descending = op.values, op.attributes["dim"], op.attributes["descending"]
    dtype, x = value.dtype, e.values[id(value)]
    known = value.tensor.is_static
    index = (
        e.emit("iota", e.of(op.results[1]), iota_dimension=e.integer(dim))
        if known
        else e.broadcast(e.count(value.shape[dim]), value.shape, (dim,), dt.int64)
    )
    made = e.create(
        "sort", [r.type for r in (x, index)], [x, index], 1,
        dimension=e.integer(dim), is_stable=e.ir.BoolAttr.get(True),
    )  # fmt: skip
    fill_comparator(e, made, dtype, descending=descending)
    return list(made.results)


def fill_comparator(e: StablehloEmitter, op: Any, dtype: DType, *, descending: bool) -> None:
    """Fill the region of a sort of elements of a dtype and their indices: does the first element come first?"""

    def precedes(a: Handle, b: Handle, i: Handle, j: Handle) -> list[Handle]:
        if descending:
            a, b = b, a
        if dtype.is_bool:
            return [e.map("and", e.map("not", a), b)]
        less = e.compare("LT", a, b)
        if dtype.is_float:
            less = e.map("or", less, e.map("and", e.compare("EQ", a, a), e.compare("NE", b, b)))
        return [less]

    e.body(op, [e.element(dtype)] * 2 + [e.element(dt.int64)] * 2, precedes)


ROWS = (
    Rule("gather", INT, _gather, _takes_gather),
    Rule("scatter", INT, _scatter, _takes_scatter),
    Rule("sort", BOOL | INT | FLOAT, _sort),
)
