"""The way from StableHLO to linalg on tensors: upstream's, with what it lacks or gets wrong made right.

``as_specified`` rewrites ops before upstream's pass. All of these change the code that runs, not the StableHLO that is
verified and printed. Each row of ``docs/stablehlo.md`` names one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import Graph, Value, values_in
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import takes
from torchstone.compiler.lowering.linalg.build import emit
from torchstone.compiler.lowering.linalg.contraction import tiles_pay
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.sums import ELEMENTWISE, operations, widen
from torchstone.compiler.lowering.stablehlo.emitter import StablehloEmitter, dtype_of, element
from torchstone.compiler.lowering.stablehlo.functions import NAMES
from torchstone.compiler.lowering.stablehlo.indexing import fill_comparator
from torchstone.compiler.lowering.stablehlo.windowed import layout
from torchstone.compiler.ops.composite import FIRST, LAST, LAYOUTS
from torchstone.compiler.passes import Pass, Pipeline
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand

TO_LINALG = "stablehlo-legalize-to-linalg"
SIGNLESS = "stablehlo-convert-to-signless,reconcile-unrealized-casts,symbol-dce"

Build = Callable[..., Sequence[Value]]


def as_specified(module: Any) -> None:
    """Rewrite ops that upstream's pass lacks, or whose lowering means something else, in place.

    - ``composite`` of a function, ``batch_norm_inference``, ``sort`` and ``scatter``: upstream has no lowering.
    - arithmetic and functions of complex numbers: upstream's overflow and cancel on the way.
    - ``convert`` of a float to an integer: upstream's is undefined out of range, and differs with the processor.
    - ``exponential_minus_one``: upstream's cancels near 0.
    - large ``dot_general`` and ``convolution``: upstream goes over the elements one by one, many times slower.
    - ``get_dimension_size`` and ``dynamic_reshape``: upstream has no lowering.
    """
    with mlir.context():
        for op in operations(module):
            if not op.name.startswith("stablehlo."):
                continue
            with op.location, mlir.ir.InsertionPoint(op):
                made = _without_elements(op) or _REWRITES.get(op.name, _left)(op)
            if made is not None:
                for old, new in zip(op.results, made, strict=True):
                    old.replace_all_uses_with(new)
                op.erase()
        pipelines.run_text(ELEMENTWISE, module, label=TO_LINALG)


def computed(op: Any, operands: Sequence[Any], build: Build) -> list[Any]:
    """Return what primitives give of tensors, by the linalg target's own lowering, at the insertion point.

    ``build`` takes a builder and the values that stand for the operands.
    """
    if not all(v.type.has_static_shape for v in operands):
        raise TorchstoneError(
            f"{op.name} of sizes that are not known, which comes to none of the targets", stage="compile"
        )
    args = [Value(TensorType(tuple(v.type.shape), dtype_of(v.type)), f"x{i}") for i, v in enumerate(operands)]
    graph = Graph("computed", args)
    graph.outputs = tuple(build(Builder(graph.ops), *args))
    graph = expand(graph, takes)
    emitter = emit(graph, [_stored(v) for v in operands], _module(op).body)
    return [_loaded(emitter.tensor(v), v.dtype) for v in values_in(graph.outputs)]


def _stored(x: Any) -> Any:
    """Return a tensor of StableHLO as linalg's lowering has it: bools and bfloat16 are integers, none has a sign."""
    arith, dtype = mlir.arith, dtype_of(x.type)
    kind = mlir.ir.RankedTensorType.get(x.type.shape, mlir.ir.IntegerType.get_signless(max(dtype.bits, 8)))
    if dtype.is_bool:
        return arith.extui(kind, x)
    if dtype == dt.bfloat16:
        return arith.bitcast(kind, x)
    return _cast(kind, x) if dtype.is_int and not dtype.is_signed else x


def _loaded(x: Any, dtype: DType) -> Any:
    arith = mlir.arith
    kind = mlir.ir.RankedTensorType.get(x.type.shape, element(dtype))
    if dtype.is_bool:
        return arith.trunci(kind, x)
    if dtype == dt.bfloat16:
        return arith.bitcast(kind, x)
    return _cast(kind, x) if dtype.is_int and not dtype.is_signed else x


def _cast(kind: Any, x: Any) -> Any:
    return mlir.ir.Operation.create("builtin.unrealized_conversion_cast", [kind], [x]).result


def _module(op: Any) -> Any:
    while op.name != "builtin.module":
        op = op.parent.operation
    return op.opview


# Rewrites: the results in place of an op's, None to leave it to upstream.


def _left(op: Any) -> None:
    return None


def _without_elements(op: Any) -> list[Any] | None:
    """Results without elements, and those of no elements: the loops of upstream's lowering want some."""
    types = [r.type for r in op.results]
    if types and all(0 in t.shape for t in types):
        if all(t.has_static_shape for t in types):
            return [mlir.tensor.empty(list(t.shape), t.element_type) for t in types]
        if op.name == "stablehlo.dynamic_broadcast_in_dim":
            sizes = _extracted(op.operands[1], types[0])
            shape = [next(sizes) if types[0].is_dynamic_dim(d) else n for d, n in enumerate(types[0].shape)]
            return [mlir.tensor.empty(shape, types[0].element_type)]
    if not any(0 in v.type.shape for v in op.operands) or op.name not in ("stablehlo.reduce", "stablehlo.dot_general"):
        return None
    e, attributes = StablehloEmitter.bare(), {"broadcast_dimensions": mlir.ir.DenseI64ArrayAttr.get([])}
    starts = list(op.operands)[len(types) :]
    if op.name == "stablehlo.dot_general":
        dtype = dtype_of(types[0])
        starts = [e.constant(0, (), dtype)]
    return [e.emit("broadcast_in_dim", t, start, **attributes) for t, start in zip(types, starts, strict=True)]


def _primitive(name: str) -> Callable[[Any], list[Any]]:
    return lambda op: computed(op, op.operands, lambda b, *xs: b.emit(name, *xs))


def _composite(op: Any) -> list[Any] | None:
    called = op.attributes["name"].value
    function = next((name for name, composite in NAMES.items() if composite == called), None)
    return None if function is None else _primitive(function)(op)


def _complex(name: str) -> Callable[[Any], list[Any] | None]:
    def rewrite(op: Any) -> list[Any] | None:
        return _primitive(name)(op) if dtype_of(op.operands[0].type).is_complex else None

    return rewrite


def _compare(op: Any) -> list[Any] | None:
    if not dtype_of(op.operands[0].type).is_complex:
        return None
    direction = str(op.attributes["comparison_direction"])
    return _primitive("ne" if "NE" in direction else "eq")(op)


def _convert(op: Any) -> list[Any] | None:
    source, target = (dtype_of(v.type) for v in (op.operands[0], op.results[0]))
    if source.is_float and target.is_int:
        return computed(op, op.operands, lambda b, x: [b.cast(x, target)])
    return None


def _sort(op: Any) -> list[Any] | None:
    """A stable sort of elements and their indices, by one of the comparators that ``flat.sort`` becomes."""
    if len(op.operands) != 2 or not str(op.operands[1].type).endswith("xi64>"):
        return None
    x, index = op.operands
    for descending in (False, True):
        ours = mlir.ir.Operation.create(
            op.name, [x.type, index.type], [x, index], {n: op.attributes[n] for n in op.attributes}, regions=1
        )
        fill_comparator(StablehloEmitter.bare(), ours, dtype_of(x.type), descending=descending)
        same = _form(ours.regions[0].blocks[0]) == _form(op.regions[0].blocks[0])
        ours.erase()
        if same and _is_counted(index, dim := op.attributes["dimension"].value):
            return computed(op, [x], lambda b, x, d=descending: b.emit("sort", x, dim=dim, descending=d))
    return None


def _is_counted(index: Any, dim: int) -> bool:
    """Say whether a value is 0, 1, … along a dim: an iota, or one of one dim that is repeated."""
    made = getattr(index.owner, "operation", None)
    if made is not None and made.name == "stablehlo.broadcast_in_dim":
        return list(made.attributes["broadcast_dimensions"]) == [dim] and _is_counted(made.operands[0], 0)
    return made is not None and made.name == "stablehlo.iota" and made.attributes["iota_dimension"].value == dim


def _form(block: Any) -> list[Any]:
    """Return what tells blocks of straight code apart: each op by name, attributes and where its operands come from."""
    values, form = list(block.arguments), []
    for op in block.operations:
        operation = op.operation
        attributes = sorted((name, str(operation.attributes[name])) for name in operation.attributes)
        form.append((operation.name, attributes, [values.index(v) for v in operation.operands]))
        values.extend(operation.results)
    return form


_SCATTERS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def _scatter(op: Any) -> list[Any] | None:
    """A scatter of one tensor with a last dim for which of the indices, as ``flat.scatter`` is written."""
    x, places, updates = list(op.operands)[:3]
    text, rank = str(op.attributes["scatter_dimension_numbers"]), places.type.rank - 1
    dims = _ints(text, "scatter_dims_to_operand_dims")
    standard = _ints(text, "update_window_dims") == list(range(rank, updates.type.rank)) and (
        _ints(text, "inserted_window_dims") == dims == sorted(dims) and _index_vector_dim(text) == rank
    )
    kind = _combination(op.regions[0].blocks[0])
    if len(op.operands) != 3 or not standard or kind is None or "batching" in text:
        return None

    def build(b: Builder, x: Value, places: Value, updates: Value) -> Sequence[Value]:
        shape = places.shape[:-1]
        each = [b.reshape(b.slice(places, rank, i, i + 1), shape) for i in range(len(dims))]
        return b.emit("scatter", x, updates, *each, dims=tuple(dims), kind=kind)

    return computed(op, [x, places, updates], build)


def _index_vector_dim(text: str) -> int:
    found = re.search(r"index_vector_dim = (\d+)", text)
    return int(found[1]) if found else 0  # which is not printed


def _combination(block: Any) -> str | None:
    """Return the kind of scatter whose body this is."""
    match _form(block):
        case [(_, _, [1])]:
            return "set"
        case [(name, _, [0, 1]), (_, _, [2])]:
            return _SCATTERS.get(name.removeprefix("stablehlo."))
    return None


def _ints(text: str, name: str) -> list[int]:
    """Return the integers of a field of a printed attribute."""
    found = re.search(rf"{name} = \[([\d, ]*)\]", text)
    return [int(n) for n in found[1].split(",") if n.strip()] if found else []


def _dot(op: Any) -> list[Any] | None:
    """A large product, by the tiles that the linalg target has."""
    x, y, out = (v.type for v in (*op.operands, op.results[0]))
    text = str(op.attributes["dot_dimension_numbers"])
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
    a_batch, b_batch, a_sum, b_sum = (tuple(_ints(text, f"{name}_dimensions")) for name in names)
    if not _tiles_pay(out, prod(x.shape[d] for d in a_sum), x, y):
        return None
    dims = {"a_batch": a_batch, "b_batch": b_batch, "a_sum": a_sum, "b_sum": b_sum}
    return computed(op, op.operands, lambda b, x, y: [b.contract(x, y, **dims)])


def _convolution(op: Any) -> list[Any] | None:
    """A large convolution, as a contraction over windows."""
    x, weight, out = (v.type for v in (*op.operands, op.results[0]))
    text = str(op.attributes["dimension_numbers"])
    channels = FIRST if text.startswith("#stablehlo.conv<[b, f") else LAST
    space = x.rank - 2
    plain = text in [f"#stablehlo.conv<{layout(c, space)}>" for c in LAYOUTS] and not any(
        name in op.attributes and any(n != usual for n in op.attributes[name])
        for name, usual in (("lhs_dilation", 1), ("window_reversal", False))
    )
    if not plain or op.attributes["batch_group_count"].value != 1:
        return None
    if not _tiles_pay(out, prod(weight.shape) // weight.shape[0], x, weight):
        return None
    low, high = zip(*_rows(op.attributes["padding"]), strict=True)
    window = {
        "stride": tuple(op.attributes["window_strides"]), "dilation": tuple(op.attributes["rhs_dilation"]),
        "low": low, "high": high, "groups": op.attributes["feature_group_count"].value, "channels": channels,
    }  # fmt: skip
    return computed(op, op.operands, lambda b, x, w: [b.convolution(x, w, **window)])


def _rows(padding: Any) -> list[tuple[int, int]]:
    numbers = list(padding)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _tiles_pay(out: Any, summed: int, *types: Any) -> bool:
    """Say whether tiles pay for a product of float32."""
    known = all(isinstance(t.element_type, mlir.ir.F32Type) and t.has_static_shape for t in (*types, out))
    return known and tiles_pay(prod(out.shape) * summed)


def _dimension_size(op: Any) -> list[Any]:
    ir, kind = mlir.ir, op.results[0].type
    at = mlir.arith.ConstantOp(ir.IndexType.get(), op.attributes["dimension"].value).result
    size = mlir.arith.index_cast(kind.element_type, mlir.tensor.dim(op.operands[0], at))
    return [mlir.create("tensor.from_elements", kind, (size,))]


def _extracted(sizes: Any, kind: Any) -> Iterator[Any]:
    """Yield, as indices, those of a tensor of sizes that a type does not know."""
    index = mlir.ir.IndexType.get()
    for d in range(kind.rank):
        if kind.is_dynamic_dim(d):
            at = mlir.arith.ConstantOp(index, d).result
            yield mlir.arith.index_cast(index, mlir.tensor.ExtractOp(sizes, [at]).result)


def _dynamic_reshape(op: Any) -> list[Any]:
    """As one dim, taken apart."""
    ir, (x, sizes), kind = mlir.ir, op.operands, op.results[0].type
    unknown = ir.ShapedType.get_dynamic_size()
    if x.type.rank > 1:
        flat = ir.RankedTensorType.get([unknown], kind.element_type)
        x = mlir.tensor.collapse_shape(flat, x, [list(range(x.type.rank))])
    if kind.rank == 0:
        one = mlir.tensor.cast(ir.RankedTensorType.get([1], kind.element_type), x)
        return [mlir.tensor.collapse_shape(kind, one, [])]
    if kind.rank == 1:
        return [mlir.tensor.cast(kind, x)]
    given = list(_extracted(sizes, kind))
    # A size is not known of the one dim, though all of those it becomes may be.
    whole = mlir.tensor.cast(ir.RankedTensorType.get([unknown if given else prod(kind.shape)], kind.element_type), x)
    return [mlir.tensor.expand_shape(kind, whole, [list(range(kind.rank))], given, list(kind.shape))]


def _batch_norm(op: Any) -> list[Any]:
    eps, dim = op.attributes["epsilon"].value, op.attributes["feature_index"].value
    return computed(op, op.operands, lambda b, *xs: b.emit("batch_norm", *xs, eps=eps, dim=dim))


_COMPLEX = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "negate": "neg", "abs": "abs", "power": "pow",
    "exponential": "exp", "log": "log", "log_plus_one": "log1p", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "sine": "sin", "cosine": "cos", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
_REWRITES: dict[str, Callable[[Any], list[Any] | None]] = {
    **{f"stablehlo.{op}": _complex(name) for op, name in _COMPLEX.items()},
    "stablehlo.batch_norm_inference": _batch_norm,
    "stablehlo.compare": _compare,
    "stablehlo.composite": _composite,
    "stablehlo.convert": _convert,
    "stablehlo.exponential_minus_one": _primitive("expm1"),
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot,
    "stablehlo.dynamic_reshape": _dynamic_reshape,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.scatter": _scatter,
    "stablehlo.sort": _sort,
}


def _legalize(module: Any) -> None:
    pipelines.run_text(f"{TO_LINALG},{SIGNLESS}", module, label=TO_LINALG)
    left = [op for f in module.body.operations for op in _walk(f.operation) if op.name.startswith("stablehlo.")]
    if left:
        raise TorchstoneError(f"upstream's {TO_LINALG} leaves {left[0].name}: {left[0]}", stage="compile")


def _walk(op: Any) -> list[Any]:
    inner = [o for region in op.regions for block in region.blocks for o in block.operations]
    return [op, *(found for o in inner for found in _walk(o.operation))]


def _in_place(change: Callable[[Any], None]) -> Callable[[Any, Any], Any]:
    def run(module: Any, _: Any) -> Any:
        change(module)
        return module

    return run


STABLEHLO_TO_LINALG = Pipeline(
    "stablehlo-to-linalg",
    (
        Pass("as-specified", "StableHLO that upstream lowers to something else is lowered here",
             _in_place(as_specified)),
        Pass("stablehlo-to-linalg", "StableHLO becomes linalg on tensors", _in_place(_legalize), mlir=TO_LINALG),
        Pass("widen", "sums are kept in float64", _in_place(widen)),
    ),
)  # fmt: skip
