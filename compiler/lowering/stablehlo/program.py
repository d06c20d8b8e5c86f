"""FlatIR graph -> verified StableHLO module -> kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, blaming, describe
from torchstone.compiler.ir import Graph, Operation, TensorType, Value
from torchstone.compiler.lowering.checked import CheckedKernel, drop_unused, mean_work, outputs_of
from torchstone.compiler.lowering.linalg.emitter import mlir_location
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.stablehlo import elementwise, functions, indexing, movement, reduction, windowed
from torchstone.compiler.lowering.stablehlo.dialect import is_static, of_sizes, register, signature
from torchstone.compiler.lowering.stablehlo.emitter import StablehloEmitter, ranked
from torchstone.compiler.lowering.stablehlo.table import ANY, Rule
from torchstone.compiler.lowering.stablehlo.to_linalg import STABLEHLO_TO_LINALG
from torchstone.compiler.lowering.target import Kernel, Lowered
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.legalizations.empty import checks_to_outputs, fold_empty

RULES: dict[str, Rule] = {
    f"flat.{rule.name}": rule
    for rule in (*elementwise.ROWS, *functions.ROWS, *movement.ROWS, *reduction.ROWS, *indexing.ROWS, *windowed.ROWS)
}
for _name in RULES:
    _ = PRIMITIVES[_name]  # a row for an op that does not exist is an error here, not a row nobody reads


def takes(op: Operation) -> str | None:
    """Return None when StableHLO has this op, else why not."""
    if op.name == "flat.check":
        return None
    rule = RULES.get(op.name)
    if rule is not None:
        return rule.refuses(op)
    if op.name.startswith("flat."):
        return f"StableHLO has no {op.name.removeprefix('flat.')}"
    return f"{op.name} has no expansion to FlatIR"


def takes_alone(op: Operation) -> str | None:
    """Return None when StableHLO has this op without a composite, else why not."""
    composite = op.name.removeprefix("flat.") in functions.NAMES
    return f"{op.name}: a composite of StableHLO" if composite else takes(op)


def lower(graph: Graph) -> Lowered:
    """Return the StableHLO of a graph of taken ops, to be run on the CPU runtime by way of linalg."""
    graph, messages = checks_to_outputs(fold_empty(graph))
    outputs = outputs_of(graph)
    module = build(graph, outputs)
    texts = {"stablehlo": lambda: str(module)}

    def compiled(module: Any) -> Any:
        from torchstone.compiler.runtime.cpu.kernel import CpuKernel

        linalg = pipelines.parse(module)
        kind = signature(linalg)
        inputs, results = _sized(graph.args, kind.inputs), _sized(outputs, kind.results)
        STABLEHLO_TO_LINALG.run(linalg)
        texts["linalg"] = lambda: str(linalg)
        kernel = CpuKernel(linalg, inputs=inputs, results=results, work=mean_work(graph))
        texts["llvm"] = kernel.llvm
        return kernel

    def load() -> Kernel:
        one_for_all = all(v.tensor.is_static for op in graph.ops if _is_static_here(op) for v in op.values)
        return CheckedKernel(graph, outputs, messages, compiled(module) if one_for_all else by_sizes(module, compiled))

    return Lowered(load, texts)


def _sized(values: Sequence[Value], types: Sequence[Any]) -> list[TensorType]:
    """Return the types of values, of known sizes where the module has them."""
    return [
        TensorType(tuple(t.shape), v.dtype) if t.has_static_shape else v.tensor
        for v, t in zip(values, types, strict=True)
    ]


# What our runtime has of known sizes only: a kernel with one of these is compiled for each sizes that it is given.
_STATIC_HERE = frozenset(
    {"flat.batch_norm", "flat.convolution", "flat.expm1", "flat.max_pool", "flat.reverse", "flat.scatter", "flat.sort"}
)


def _is_static_here(op: Operation) -> bool:
    """Say whether our runtime takes an op of known sizes only: what is not upstream's lowering."""
    if op.name in _STATIC_HERE or any(v.dtype.is_complex for v in (*op.values, *op.results)):
        return True
    return op.name == "flat.cast" and next(op.values).dtype.is_float and op.result.dtype.is_int


def lower_to_interpreter(graph: Graph) -> Lowered:
    """Return the StableHLO of a graph of taken ops, to be run by StableHLO's reference interpreter."""

    def interpreter(module: Any) -> Any:
        from torchstone.compiler.runtime.stablehlo_interpreter import Interpreter

        return Interpreter(module)

    return _lowered(graph, interpreter)


def lower_to_xla(graph: Graph) -> Lowered:
    """Return the StableHLO of a graph of taken ops, to be run by XLA's CPU client."""

    def xla(module: Any) -> Any:
        from torchstone.compiler.runtime.xla import Xla

        return Xla(module)

    return _lowered(graph, xla)


def _lowered(graph: Graph, load: Callable[[Any], Any]) -> Lowered:
    graph, messages = checks_to_outputs(fold_empty(graph))
    outputs = outputs_of(graph)
    module = build(graph, outputs)
    return Lowered(
        lambda: CheckedKernel(graph, outputs, messages, by_sizes(module, load)), {"stablehlo": lambda: str(module)}
    )


def by_sizes(module: Any, load: Callable[[Any], Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what runs a module by one that takes static sizes only: loaded now, or for each sizes that it is given."""
    if is_static(module):
        return load(module)
    loaded: dict[tuple[tuple[int, ...], ...], Any] = {}

    def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
        sizes = tuple(tuple(t.shape) for t in tensors)
        if sizes not in loaded:
            loaded[sizes] = load(of_sizes(module, sizes))
        return loaded[sizes](tensors)

    return run


def build(graph: Graph, outputs: Sequence[Value]) -> Any:
    """Return a verified MLIR module with one public function ``main`` over the graph's tensors."""
    for value in (*graph.args, *outputs):
        if not isinstance(value.type, TensorType):
            raise Unsupported(f"StableHLO passes tensors only, got {value.type}", stage="lower")
        if value.dtype.name not in ANY:
            raise Unsupported(f"our StableHLO has no {value.dtype.name}", stage="lower")
    register()
    ir = mlir.ir
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        made = functions.Functions(module.body, takes_alone, _emit)
        inputs, results = ([ranked(v.shape, v.dtype) for v in values] for values in (graph.args, outputs))
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("main", (inputs, results))
        with ir.InsertionPoint(function.add_entry_block()):
            e = StablehloEmitter(graph, list(function.arguments), made)
            for op in graph.ops:
                with blaming(op):
                    _emit(e, op)
            mlir.func.ReturnOp([e.values[id(v)] for v in outputs])
        drop_unused(function)
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise Unsupported(f"StableHLO refuses the program: {error}", stage="lower") from None
    return module


def _emit(e: StablehloEmitter, op: Operation) -> None:
    with mlir_location(op.name, op.location):
        try:
            made = RULES[op.name].lower(e, op)
        except TorchstoneError as error:
            error.op, error.where = error.op or op.name, error.where or describe(op)
            raise
    handles = made if isinstance(made, list) else [made]
    e.values.update({id(r): h for r, h in zip(op.results, handles, strict=True)})
