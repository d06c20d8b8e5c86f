"""Numbers that depend on sizes or on a tensor's value: PyTorch's SymInts, SymFloats and SymBools become 0-d values.

Python computes with its floats in float64, and so do these ops; its integers are taken for int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import sympy
import torch
from torch.utils._sympy import functions as tsf

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.literals import FROM_TORCH
from torchstone.compiler.frontends.symbolic import from_sympy
from torchstone.compiler.ir import DType, Location, Operation, TensorType, Value
from torchstone.compiler.ir import dtypes as dt

Number: TypeAlias = "torch.SymInt | torch.SymFloat | torch.SymBool"
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What an op is noted to be there for when it computes a number of the program.
NOTE = "a number of the program"

_TRUE_DIVISION = (tsf.FloatTrueDiv, tsf.IntTrueDiv)
_INTEGERS: dict[Any, tuple[str, tuple[Any, ...]]] = {
    tsf.FloorDiv: ("aten.div.Tensor_mode", ("floor",)),
    tsf.CleanDiv: ("aten.div.Tensor_mode", ("floor",)),
    tsf.PythonMod: ("aten.remainder.Tensor", ()),
    tsf.Mod: ("aten.remainder.Tensor", ()),
}
_EITHER = {tsf.Max: "aten.maximum.default", tsf.Min: "aten.minimum.default"}
_RELATIONS = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.StrictLessThan: "lt", sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt", sympy.GreaterThan: "ge",
}  # fmt: skip
_LOGIC = {sympy.And: "aten.logical_and.default", sympy.Or: "aten.logical_or.default"}
_TO_INT = {tsf.TruncToInt: "trunc", tsf.FloorToInt: "floor", tsf.CeilToInt: "ceil", tsf.RoundToInt: "round"}
_UNARY = {
    name: f"aten.{name}.default"
    for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")
}


def number_value(number: Number, known: Mapping[str, Value], ops: list[Operation], location: Location) -> Value:
    """Append to ``ops`` what computes a number; ``known`` holds those that are values already, by their symbol.

    An int is int64[], a float float64[], a bool bool[]. Unsupported for a function that has no counterpart here.
    """
    location = location.noted(NOTE)

    def emit(name: str, dtype: DType, *operands: Any) -> Value:
        result = Value(TensorType((), dtype))
        ops.append(Operation(name, operands, (result,), location=location))
        return result

    def constant(value: Any, dtype: DType) -> Value:
        return emit("aten.scalar_tensor.default", dtype, value, dtype, None, None, None)

    def cast(value: Value, dtype: DType) -> Value:
        if value.dtype == dtype:
            return value
        return emit("aten._to_copy.default", dtype, value, dtype, None, None, None, False, None)

    def chain(name: str, dtype: DType, args: Sequence[sympy.Basic], *more: Any) -> Value:
        return reduce(lambda a, b: emit(name, dtype, a, b, *more), [cast(value(arg), dtype) for arg in args])

    def compared(relation: str, left: sympy.Basic, right: sympy.Basic) -> Value:
        a, b = value(left), value(right)
        wide = dt.float64 if dt.float64 in (a.dtype, b.dtype) else dt.int64
        return emit(f"aten.{relation}.Tensor", dt.boolean, cast(a, wide), cast(b, wide))

    def value(expr: sympy.Basic) -> Value:
        if str(expr) in known:
            return known[str(expr)]
        kind = type(expr)
        dtype = dt.int64 if expr.is_integer else dt.float64
        match expr:
            case sympy.logic.boolalg.BooleanTrue() | sympy.logic.boolalg.BooleanFalse():
                return constant(bool(expr), dt.boolean)
            case sympy.Integer():
                return constant(int(expr), dt.int64)
            case sympy.Number():
                return constant(float(expr), dt.float64)
            case tsf.ToFloat():
                return cast(value(expr.args[0]), dt.float64)
            case _ if kind in _RELATIONS:
                return compared(_RELATIONS[kind], *expr.args)
            case _ if kind in _LOGIC:
                return chain(_LOGIC[kind], dt.boolean, expr.args)
            case sympy.Not():
                return emit("aten.logical_not.default", dt.boolean, value(expr.args[0]))
            case _ if kind in _TRUE_DIVISION:
                return chain("aten.div.Tensor", dt.float64, expr.args)
            case tsf.FloatPow():
                return chain("aten.pow.Tensor_Tensor", dt.float64, expr.args)
            case _ if kind in _TO_INT:
                whole = emit(f"aten.{_TO_INT[kind]}.default", dt.float64, value(expr.args[0]))
                return cast(whole, dt.int64)
            case _ if expr.is_integer and not any(str(s) in known for s in expr.free_symbols):
                return constant(from_sympy(expr), dt.int64)
            case sympy.Add():
                return chain("aten.add.Tensor", dtype, expr.args, 1)
            case sympy.Mul():
                return chain("aten.mul.Tensor", dtype, expr.args)
            case sympy.Pow(args=(base, sympy.Integer() as power)) if expr.is_integer and int(power) > 0:
                return chain("aten.mul.Tensor", dtype, [base] * int(power))
            case _ if kind in _INTEGERS:
                name, more = _INTEGERS[kind]
                return chain(name, dtype, expr.args, *more)
            case _ if kind in _EITHER:
                return chain(_EITHER[kind], dtype, expr.args)
        name = kind.__name__.removeprefix("OpaqueUnaryFn_")
        if name in _UNARY:
            return emit(_UNARY[name], dt.float64, cast(value(expr.args[0]), dt.float64))
        raise Unsupported(f"the number {expr} ({kind.__name__})", stage="capture")

    return value(sympy.sympify(number.node.expr))


def as_operand(value: Value, tensors: Sequence[Value]) -> DType | None:
    """Return the dtype that eager takes a float in beside these tensors, None where its ops take care of that.

    A number, other than a 0-d tensor, is of a lower rank than any tensor: only its category counts.
    """
    if value.dtype != dt.float64 or not tensors:
        return None
    if all(t.dtype.is_int or t.dtype.is_bool for t in tensors):
        return FROM_TORCH[torch.get_default_dtype()]
    first = tensors[0]
    return first.dtype if first.rank == 0 and first.dtype.is_float and not first.dtype.is_half else None


def cast_number(value: Value, dtype: DType, ops: list[Operation], location: Location) -> Value:
    """Append to ``ops`` the cast of a number."""
    result = Value(TensorType((), dtype))
    operands = (value, dtype, None, None, None, False, None)
    ops.append(Operation("aten._to_copy.default", operands, (result,), location=location.noted(NOTE)))
    return result


# Ops that compute with a number and do not decide by it, beside those that take it as a tensor.
_COMPUTING = frozenset(
    {
        "add", "clamp", "clamp_max", "clamp_min", "div", "eq", "fill", "full", "full_like", "ge", "gt", "le", "lt",
        "masked_fill", "mul", "ne", "new_full", "rsub", "scalar_tensor", "sub", "where",
    }
)  # fmt: skip


def takes_number(func: Any, argument: Any) -> bool:
    """Say whether an argument of an op may be a number of any value."""
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    return kind == "Tensor" or (kind == "number" and func._schema.name.removeprefix("aten::") in _COMPUTING)
