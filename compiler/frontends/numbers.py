"""Floats that depend on sizes or on a tensor's value: PyTorch's SymFloats become 0-d float64 values of the graph.

Python computes with its floats in float64, and so do these ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as tsf

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.symbolic import from_sympy
from torchstone.compiler.ir import Location, Operation, TensorType, Value
from torchstone.compiler.ir import dtypes as dt

_BINARY = {
    tsf.FloatTrueDiv: "aten.div.Tensor",
    tsf.IntTrueDiv: "aten.div.Tensor",
    tsf.FloatPow: "aten.pow.Tensor_Tensor",
}
_UNARY = {
    name: f"aten.{name}.default"
    for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")
}


def float_value(number: torch.SymFloat, floats: Mapping[str, Value], ops: list[Operation], location: Location) -> Value:
    """Append to ``ops`` what computes a float; ``floats`` holds those that are values already, by their symbol.

    Unsupported for a function that has no counterpart here.
    """

    def emit(name: str, *operands: Any) -> Value:
        result = Value(TensorType((), dt.float64))
        ops.append(Operation(name, operands, (result,), location=location))
        return result

    def constant(value: Any) -> Value:
        return emit("aten.scalar_tensor.default", value, dt.float64, None, None, None)

    def chain(name: str, args: Sequence[sympy.Basic], *more: Any) -> Value:
        return reduce(lambda a, b: emit(name, a, b, *more), [value(arg) for arg in args])

    def value(expr: sympy.Basic) -> Value:
        if str(expr) in floats:
            return floats[str(expr)]
        match expr:
            case sympy.Number():
                return constant(float(expr))
            case tsf.ToFloat():
                return value(expr.args[0])
            case tsf.FloatTrueDiv() | tsf.IntTrueDiv() | tsf.FloatPow():
                return emit(_BINARY[type(expr)], *(value(arg) for arg in expr.args))
            case _ if expr.is_integer:
                return constant(from_sympy(expr))
            case sympy.Add():
                return chain("aten.add.Tensor", expr.args, 1)
            case sympy.Mul():
                return chain("aten.mul.Tensor", expr.args)
        name = type(expr).__name__.removeprefix("OpaqueUnaryFn_")
        if name in _UNARY:
            return emit(_UNARY[name], value(expr.args[0]))
        raise Unsupported(f"the number {expr} ({type(expr).__name__})", stage="capture")

    return value(number.node.expr)
