"""Runs a schedule on the host: kernels, library calls and the binding of run-time sizes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from torchstone.compiler.capture.trace.aten_literals import TO_TORCH, from_literal
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.capture.trace.special_ops import FACTORED_BY_ORDER
from torchstone.compiler.diagnostics import GuardError, describe
from torchstone.compiler.ir import Expr, Graph, Operation, TensorType, Value, map_operand
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.ir.sizes import bind_symbols
from torchstone.compiler.lowering.steps import Segment, Step
from torchstone.compiler.lowering.target import Kernel
from torchstone.compiler.runtime.control import run_control
from torchstone.compiler.runtime.draws import drawing


class RunState:
    """What is known so far in one run: the tensor of each value, by its id, and the size of each symbol."""

    def __init__(self, graph: Graph, tensors: Sequence[torch.Tensor]) -> None:
        self.values: dict[int, Any] = {id(a): t for a, t in zip(graph.args, tensors, strict=True)}
        self.sizes = bind_symbols(graph, tensors)

    def concrete(self, operand: Any) -> Any:
        """Return what an operand stands for: tensors for values, ints for sizes."""

        def leaf(item: Any) -> Any:
            if isinstance(item, Value):
                return self.values[id(item)]
            return from_literal(item, lambda size: evaluate(size, self.sizes))

        return [self.concrete(item) for item in operand] if isinstance(operand, tuple) else leaf(operand)

    def fit(self, op: Operation, value: Value, tensor: Any) -> None:
        """Bind the symbols in a result's type to its sizes; GuardError when it is not what was compiled for."""
        kind = value.tensor
        fits = tensor.dtype == TO_TORCH[kind.dtype] and tensor.dim() == kind.rank
        for dim, size in zip(kind.dims, tensor.shape, strict=False):
            if isinstance(dim, Expr) and str(dim).isidentifier():
                self.sizes.setdefault(str(dim), size)
            fits = fits and evaluate(dim, self.sizes) == size
        if not fits:
            got = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            raise GuardError(f"{op.name} was compiled to give {kind}, and gives {got}", op=op.name, where=describe(op))


Run: TypeAlias = Callable[[RunState], None]


class Schedule:
    """The kernel of a graph that the host has a part in."""

    def __init__(self, graph: Graph, steps: Sequence[tuple[Step, dict[str, Kernel]]]) -> None:
        self._graph = graph
        self._steps = [_kernel(s, k["kernel"]) if isinstance(s, Segment) else _host(s, k) for s, k in steps]
        # Outputs are fresh tensors: what somebody else holds is copied.
        self._held = {id(a) for a in graph.args}

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        state = RunState(self._graph, tensors)
        with torch.no_grad():
            for step in self._steps:
                step(state)
        held = set(self._held)

        def output(leaf: Any) -> Any:
            if not isinstance(leaf, Value):
                return state.concrete(leaf)
            tensor = state.values[id(leaf)]
            if id(leaf) in held:
                return tensor.detach().clone(memory_format=torch.contiguous_format)
            held.add(id(leaf))
            return tensor

        return tuple(map_operand(o, output) for o in self._graph.outputs)


def _kernel(segment: Segment, kernel: Kernel) -> Run:
    carriers = len(segment.sizes)
    args = segment.graph.args[: len(segment.graph.args) - carriers]
    results = segment.graph.outputs

    def run(state: RunState) -> None:
        tensors = [state.values[id(a)] for a in args]
        tensors.extend(_carrier(name, state.sizes[name]) for name in segment.sizes)
        state.values.update({id(r): t for r, t in zip(results, kernel(tensors), strict=True)})

    return run


def _carrier(name: str, size: int) -> torch.Tensor:
    """Return a tensor without elements that tells a kernel a size."""
    if size < 0:
        raise GuardError(f"{name}, a number read from a tensor, is {size}, and the program takes none below 0")
    return torch.empty((size, 0), dtype=torch.uint8)


def _host(op: Operation, kernels: dict[str, Kernel]) -> Run:
    if op.name == "flat.cond":
        return _cond(op, kernels["then"], kernels["otherwise"])
    if op.name == "flat.while":
        return _while(op, kernels["condition"], kernels["body"])
    return _guard(op) if op.name.startswith("flat.") else call(op)


def _cond(op: Operation, then: Kernel, otherwise: Kernel) -> Run:
    def run(state: RunState) -> None:
        pred, *operands = (state.values[id(v)] for v in op.values)
        results = (then if bool(pred) else otherwise)(operands)
        state.values.update({id(r): t for r, t in zip(op.results, results, strict=True)})

    return run


def _while(op: Operation, condition: Kernel, body: Kernel) -> Run:
    carried = op.attributes["carried"]

    def run(state: RunState) -> None:
        given = [state.values[id(v)] for v in op.values]
        operands = [tensor.clone() for tensor in given[:carried]] + given[carried:]
        while bool(condition(operands)[0]):
            operands[:carried] = body(operands)
        state.values.update({id(r): t for r, t in zip(op.results, operands, strict=False)})

    return run


def _guard(op: Operation) -> Run:
    """Bind a size, or hold sizes and values against what the program was compiled for."""

    def run(state: RunState) -> None:
        try:
            run_control(op, [state.values[id(v)] for v in op.values], state.sizes)
        except GuardError as error:
            error.where = describe(op)
            raise

    return run


def call(op: Operation) -> Run:
    """Call LibTorch. Its results are contiguous and share no memory with an operand, as a kernel's."""
    overload = find_overload(op.name)
    results = [(i, r) for i, r in enumerate(op.results) if isinstance(r.type, TensorType)]

    def run(state: RunState) -> None:
        if "strides" in op.attributes:
            out = drawing(op, state.concrete)
        else:
            operands = [state.concrete(o) for o in op.operands]
            if overload in FACTORED_BY_ORDER:
                operands[0] = operands[0].contiguous()
            args, kwargs = schema_call(overload, operands)
            out = overload(*args, **kwargs)
        flat = out if isinstance(out, list | tuple) else (out,)
        for index, value in results:
            state.fit(op, value, flat[index])
            state.values[id(value)] = flat[index].contiguous()

    return run
