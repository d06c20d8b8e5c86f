"""FlatIR graph -> validated TOSA module -> kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, blaming, describe
from torchstone.compiler.ir import Graph, Operation, TensorType, Value
from torchstone.compiler.lowering.checked import CheckedKernel, drop_unused, mean_work, outputs_of
from torchstone.compiler.lowering.target import Kernel, Lowered
from torchstone.compiler.lowering.tosa import elementwise, movement, reduction, windowed
from torchstone.compiler.lowering.tosa.division import exact_quotients
from torchstone.compiler.lowering.tosa.emitter import TosaEmitter, location
from torchstone.compiler.lowering.tosa.table import MOVABLE, TosaRule
from torchstone.compiler.lowering.tosa.validate import to_linalg, validate
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.channels_last import channels_last
from torchstone.compiler.transforms.legalizations.empty import checks_to_outputs, fold_empty, is_empty
from torchstone.compiler.transforms.sink_transposes import sink_transposes

RULES: dict[str, TosaRule] = {
    f"flat.{rule.name}": rule
    for rule in (*elementwise.ROWS, *elementwise.STRUCTURED, *movement.ROWS, *reduction.ROWS, *windowed.ROWS)
}  # fmt: skip
for _name in RULES:
    _ = PRIMITIVES[_name]  # a row for an op that does not exist is an error here, not a row nobody reads


def takes(op: Operation) -> str | None:
    """Return None when TOSA has this op, else why not."""
    if op.name == "flat.check":
        return None
    rule = RULES.get(op.name)
    if rule is not None:
        return rule.refuses(op)
    if op.name.startswith("flat."):
        return f"TOSA has no {op.name.removeprefix('flat.')}"
    return f"{op.name} has no expansion to FlatIR"


def prepare(graph: Graph) -> Graph:
    """Return an equal graph without tensors that have no elements, its channels last."""
    return sink_transposes(channels_last(fold_empty(graph)))


def lower(graph: Graph) -> Lowered:
    """Return the TOSA of a graph of taken ops, validated; Unsupported for what the profile does not allow."""
    graph, messages = checks_to_outputs(prepare(graph))
    outputs = outputs_of(graph)
    module = build(graph, outputs)
    validate(module)
    texts = {"tosa": lambda: str(module)}

    def load() -> Kernel:
        from torchstone.compiler.lowering.mlir_passes import pipelines
        from torchstone.compiler.runtime.cpu.kernel import CpuKernel

        linalg = pipelines.parse(module)
        to_linalg(linalg)
        texts["linalg"] = lambda: str(linalg)
        types = [a.tensor for a in graph.args]
        kernel = CpuKernel(linalg, inputs=types, results=[v.tensor for v in outputs], work=mean_work(graph))
        texts["llvm"] = kernel.llvm
        return CheckedKernel(graph, outputs, messages, kernel)

    return Lowered(load, texts)


def build(graph: Graph, outputs: Sequence[Value]) -> Any:
    """Return a verified MLIR module with one function ``main`` over the graph's tensors."""
    from torchstone.compiler import mlir

    for value in (*graph.args, *outputs):
        if not isinstance(value.type, TensorType):
            raise Unsupported(f"TOSA passes tensors only, got {value.type}", stage="lower")
        if value.dtype.name not in MOVABLE:
            raise Unsupported(f"TOSA has no {value.dtype.name}", stage="lower")
    ir = mlir.ir
    with mlir.context(), ir.Location.unknown():
        module, e = ir.Module.create(), TosaEmitter()
        kinds = [e.type(v.shape, v.dtype) for v in graph.args], [e.type(v.shape, v.dtype) for v in outputs]
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("main", kinds)
        with ir.InsertionPoint(function.add_entry_block()):
            for arg, handle in zip(graph.args, function.arguments, strict=True):
                e.values[id(arg)] = handle
            e.exact = exact_quotients(graph.ops)
            for op in graph.ops:
                with blaming(op):
                    _emit(e, op)
            mlir.func.ReturnOp([e.full(v) for v in outputs])
            drop_unused(function)
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise Unsupported(f"TOSA refuses the program: {error}", stage="lower") from None
    return module


def _emit(e: TosaEmitter, op: Operation) -> None:
    with location(op.location, op.name):
        if is_empty(op.result):
            # TOSA has no empty tensors: an empty output is made beside it.
            from torchstone.compiler import mlir

            if not all(isinstance(size, int) for size in op.result.shape):
                raise Unsupported(f"TOSA has no empty tensors of run-time size: {op.result.type}", stage="lower")
            e.values[id(op.result)] = mlir.tensor.empty(list(op.result.shape), e.element(op.result.dtype))
            return
        try:
            e.values[id(op.result)] = _lowered(e, op)
        except TorchstoneError as error:
            error.op, error.where = error.op or op.name, error.where or describe(op)
            raise


def _lowered(e: TosaEmitter, op: Operation) -> Any:
    """Lower an op; an elementwise one of tensors that were all reshaped alike before they were, its result is.

    So a dim that a reduction took away is not put back for one op and taken away again.
    """
    rule = RULES[op.name]
    before = (
        {id(v): e.source(v) for v in op.values if id(v) not in e.numbers} if PRIMITIVES[op.name].elementwise else {}
    )
    sources = [x for x in before.values() if x is not None]
    shapes = {(*e.shape(e.values[key]), None, *e.shape(x)) for key, x in before.items() if x is not None}
    if not sources or len(sources) != len(before) or len(shapes) != 1:
        return rule.lower(e, op)
    kept = {id(v): e.values[id(v)] for v in op.values}
    shape, rank = e.shape(e.values[next(iter(before))]), sources[0].type.rank
    for v in op.values:
        e.values[id(v)] = before[id(v)] if id(v) in before else e.constant(e.numbers[id(v)], [1] * rank, v.dtype)
    out = rule.lower(e, op)
    e.values.update(kept)
    return e.reshape(out, shape)
