"""FlatIR graph -> linalg module -> CPU kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import Unsupported, blaming, failed_check
from torchstone.compiler.ir import Graph, Operation, Value
from torchstone.compiler.ir.dims import Dim, floordiv
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import indexing, loop_fusion, movement, ordering, reduce
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter, static_sizes
from torchstone.compiler.lowering.target import Kernel, Lowered


def check(e: LinalgEmitter, op: Operation) -> list[Any]:
    (predicate,) = op.values
    raw = mlir.tensor.ExtractOp(e.tensor(predicate), []).result
    mlir.cf.AssertOp(s.load(predicate.dtype, raw), failed_check(op))
    return []


STRUCTURED: Mapping[str, Callable[[LinalgEmitter, Operation], list[Any]]] = {
    "flat.slice": movement.slice_,
    "flat.concat": movement.concat,
    "flat.pad": movement.pad,
    "flat.reverse": movement.reverse,
    "flat.reshape": movement.reshape,
    "flat.constant": movement.constant,
    "flat.reduce": reduce.reduce,
    "flat.arg_reduce": reduce.arg_reduce,
    "flat.contract": reduce.contract,
    "flat.scatter": indexing.scatter,
    "flat.scan": ordering.scan,
    "flat.sort": ordering.sort,
    "flat.check": check,
}


class LinalgKernel:
    """The CPU kernel of a graph, with the outputs that are no tensors put back in their places."""

    def __init__(self, kernel: Any, outputs: Sequence[Any]) -> None:
        self.kernel = kernel
        self._outputs = tuple(outputs)
        self._all_computed = all(isinstance(o, Value) for o in outputs)

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        if self._all_computed:
            return self.kernel(tensors)
        computed = iter(self.kernel(tensors))
        return tuple(next(computed) if isinstance(o, Value) else o for o in self._outputs)


def lower(graph: Graph) -> Lowered:
    """Lower a graph of FlatIR ops; the module's text is the stage ``linalg``, after loading ``llvm`` too.

    Raises Unsupported (stage ``lower``) for an op or type without a rule, TorchstoneError when MLIR refuses the module.
    """
    results = [o for o in graph.outputs if isinstance(o, Value)]
    module, work = build(graph, results)
    texts: dict[str, Callable[[], str]] = {"linalg": lambda: str(module)}

    def load() -> Kernel:
        from torchstone.compiler.runtime.cpu.kernel import CpuKernel

        inputs, outputs = [a.tensor for a in graph.args], [r.tensor for r in results]
        kernel = CpuKernel(module, inputs=inputs, results=outputs, work=work, fused=True)
        texts["llvm"] = kernel.llvm
        return LinalgKernel(kernel, graph.outputs)

    return Lowered(load, texts)


def build(graph: Graph, results: Sequence[Value]) -> tuple[Any, Dim]:
    """Return the module, and an estimate of the iterations of its mean loop nest."""
    ir = mlir.ir
    for value in (*graph.args, *results):
        if not isinstance(value.type, TensorType):
            raise Unsupported(f"the linalg target takes tensors only, got {value}", stage="lower")
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        inputs = [_type(a.tensor) for a in graph.args]
        kind = ir.FunctionType.get(inputs, [_type(r.tensor) for r in results])
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("main", kind)
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            emitter = emit(graph, list(block.arguments), module.body)
            mlir.func.ReturnOp([emitter.tensor(r) for r in results])
        _verify(module, graph)
    return module, floordiv(emitter.work, max(1, emitter.nests))


def emit(graph: Graph, arguments: Sequence[Any], body: Any) -> LinalgEmitter:
    """Emit the ops of a graph at the insertion point, on these tensors, into a module with this body."""
    emitter = LinalgEmitter(graph, arguments, body)
    stored = loop_fusion.buffered(graph)
    for op in graph.ops:
        _lower_op(emitter, op, stored)
    return emitter


def _lower_op(e: LinalgEmitter, op: Operation, stored: set[int]) -> None:
    fused = loop_fusion.is_fused(op)
    if fused and id(op.result) not in stored:
        return
    with e.location(op), blaming(op):
        if fused:
            e.tensor(op.result)
            return
        if any(0 in r.shape for r in op.results):
            tensors = [e.empty(r.shape, s.element(r.dtype)) for r in op.results]
        elif op.name in STRUCTURED:
            tensors = STRUCTURED[op.name](e, op)
        else:
            raise Unsupported(f"{op.name}: no rule for the linalg target", op=op.name, stage="lower")
        e.values.update({id(r): t for r, t in zip(op.results, tensors, strict=True)})


def _type(tensor: TensorType) -> Any:
    return mlir.ir.RankedTensorType.get(static_sizes(tensor.dims), s.element(tensor.dtype))


def _verify(module: Any, graph: Graph) -> None:
    try:
        module.operation.verify()
    except mlir.ir.MLIRError as error:
        from torchstone.compiler.lowering.mlir_passes.pipelines import compile_error

        raise compile_error(
            f"the linalg module of @{graph.name} is a bug of the compiler: its verification", error
        ) from error
