"""A backend of one class: programs of a few ops, executed by NumPy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from torchstone.conformance.backends import Availability, BackendError, BackendUnsupported
from torchstone.conformance.backends.export_support import capture

# The whole compiler: an op of PyTorch's core set, and the function of NumPy's that computes it.
OPS = {
    "aten.add.Tensor": "add",
    "aten.sub.Tensor": "subtract",
    "aten.mul.Tensor": "multiply",
    "aten.maximum.default": "maximum",
    "aten.neg.default": "negative",
    "aten.abs.default": "absolute",
    "aten.exp.default": "exp",
    "aten.sqrt.default": "sqrt",
    "aten.mm.default": "matmul",
}


class NumPy:
    name = "numpy"
    executors = ("numpy",)  # which of those that `evidence` names are our own

    def available(self) -> Availability:
        if importlib.util.find_spec("numpy") is None:
            return Availability(False, "numpy is not installed", "pip install numpy")
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("torch", "numpy")}

    def compile(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        exported = capture(fn, args, {})  # a graph of core ATen ops without writes; raises BackendUnsupported
        for node in exported.program.graph.nodes:
            if node.op == "call_function":
                _check(node)
        return Compiled(exported)


class Compiled:
    """What torchstone calls, with the evidence of what it did."""

    def __init__(self, exported: Any) -> None:
        self.exported = exported
        self.evidence: dict[str, Any] = {}

    def __call__(self, *args: Any) -> Any:
        import numpy
        import torch

        ran: list[str] = []
        values: dict[Any, Any] = {}
        given = iter(args)
        for node in self.exported.program.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given).numpy()
            elif node.op == "call_function":
                function = getattr(numpy, OPS[str(node.target)])
                values[node] = function(*(values.get(arg, arg) for arg in node.args))
                ran.append(function.__name__)
        self.evidence = {"ran": {"numpy": ran}} if ran else {"ran": {}}
        (outputs,) = self.exported.program.graph.output_node().args
        results = [torch.from_numpy(numpy.array(values[node])) for node in outputs]
        try:
            return self.exported.finish(args, results)
        except ValueError as error:
            raise BackendError(str(error), stage="run") from error


def _check(node: Any) -> None:
    """Decline what NumPy would compute otherwise than PyTorch: another op, a keyword, operands of several dtypes."""
    op = str(node.target)
    if op not in OPS or node.kwargs:
        raise BackendUnsupported(f"no NumPy function for {op}", stage="lower", op=op)
    dtypes = {operand.meta["val"].dtype for operand in (*node.all_input_nodes, node)}
    if len(dtypes) > 1 or not all(dtype.is_floating_point and dtype.itemsize >= 4 for dtype in dtypes):
        told = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise BackendUnsupported(f"{op} is computed in float32 or float64, not in {told}", stage="lower", op=op)
