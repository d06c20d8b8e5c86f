"""Numbers that depend on sizes or on a tensor's value: PyTorch's SymInts, SymFloats and SymBools become 0-d values.

Python's integers are taken for int64. Its floats are computed with in ``floats``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import sympy
import torch

from torchstone.compiler._torch import sympy_functions as tsf
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler.capture.symbolic.sizes import from_sympy
from torchstone.compiler.capture.trace.aten_literals import FROM_TORCH
from torchstone.compiler.diagnostics import NOT_TAKEN, Unsupported
from torchstone.compiler.ir import DType, Location, Operation, TensorType, Value
from torchstone.compiler.ir import dtypes as dt

Number: TypeAlias = "torch.SymInt | torch.SymFloat | torch.SymBool"
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What an op is noted to be there for when it computes a number of the program.
NOTE = "a number of the program"

_INTEGERS: dict[Any, tuple[str, tuple[Any, ...]]] = {
    tsf.FloorDiv: ("aten.div.Tensor_mode", ("floor",)),
    tsf.CleanDiv: ("aten.div.Tensor_mode", ("floor",)),
    tsf.PythonMod: ("aten.remainder.Tensor", ()),
    tsf.Mod: ("aten.remainder.Tensor", ()),
}
_DIVIDING = frozenset(name for name, _ in _INTEGERS.values())
_EITHER = {tsf.Max: "aten.maximum.default", tsf.Min: "aten.minimum.default"}
_RELATIONS = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.StrictLessThan: "lt", sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt", sympy.GreaterThan: "ge",
}  # fmt: skip
_LOGIC = {sympy.And: "aten.logical_and.default", sympy.Or: "aten.logical_or.default"}


class NumberEmitter:
    """Appends to ``ops`` what computes 0-d values, noted to be there for a number."""

    def __init__(self, ops: list[Operation], location: Location) -> None:
        self._ops = ops
        self._location = location.noted(NOTE)

    def emit(self, name: str, dtype: DType, *operands: Any) -> Value:
        result = Value(TensorType((), dtype))
        self._ops.append(Operation(name, operands, (result,), location=self._location))
        return result

    def constant(self, value: Any, dtype: DType) -> Value:
        return self.emit("aten.scalar_tensor.default", dtype, value, dtype, None, None, None)

    def cast(self, value: Value, dtype: DType) -> Value:
        if value.dtype == dtype:
            return value
        return self.emit("aten._to_copy.default", dtype, value, dtype, None, None, None, False, None)

    def check(self, condition: Value, message: str) -> None:
        """Have a run raise where the condition does not hold, as the program would."""
        self._ops.append(Operation("flat.check", (condition,), (), {"message": message}, self._location))

    def take(self, condition: Value, otherwise: str) -> None:
        """Have a run raise Unsupported where the condition does not hold, for a number the program would take."""
        self.check(condition, NOT_TAKEN + otherwise)


def number_value(number: Number, known: Mapping[str, Value], emitter: NumberEmitter) -> Value:
    """Emit what computes a number; ``known`` holds those that are values already, by their symbol.

    An int is int64[], a float float64[], a bool bool[]. Integers are what sympy says of them, for its integers are
    exact; where one, or a term of it, is over 2**62 the run raises, for Python's ints do not overflow. A float has to
    be known (see ``floats``). Unsupported for one that is not, and for an int of a function that has no counterpart.
    """
    return _Integers(known, emitter).value(sympy.sympify(number.node.expr))


@dataclass(frozen=True, slots=True)
class _Integers:
    """The ops of an expression of sympy on integers and booleans; ``known`` are the values of its symbols."""

    known: Mapping[str, Value]
    emitter: NumberEmitter

    def value(self, expr: sympy.Basic) -> Value:
        emit, constant, known = self.emitter.emit, self.emitter.constant, self.known
        if str(expr) in known:
            return known[str(expr)]
        kind = type(expr)
        match expr:
            case sympy.logic.boolalg.BooleanTrue() | sympy.logic.boolalg.BooleanFalse():
                return constant(bool(expr), dt.boolean)
            case sympy.Eq(args=(one, sympy.Number() as other)) | sympy.Ne(args=(one, sympy.Number() as other)) if (
                known.get(str(one)) is not None and known[str(one)].dtype == dt.float64
            ):
                left = self.value(one)
                return emit(f"aten.{_RELATIONS[kind]}.Tensor", dt.boolean, left, constant(float(other), dt.float64))
            case _ if kind in _RELATIONS:
                left, right = (self.value(side) for side in expr.args)
                return emit(f"aten.{_RELATIONS[kind]}.Tensor", dt.boolean, left, right)
            case _ if kind in _LOGIC:
                return reduce(lambda a, b: emit(_LOGIC[kind], dt.boolean, a, b), map(self.value, expr.args))
            case sympy.Not():
                return emit("aten.logical_not.default", dt.boolean, self.value(expr.args[0]))
            case _ if not expr.is_integer:
                raise Unsupported(
                    f"the number {expr}, for sympy computes with reals where Python does with floats", stage="capture"
                )
            case sympy.Integer():
                return constant(int(expr), dt.int64)
            case _ if not any(str(s) in known for s in expr.free_symbols):
                return constant(from_sympy(expr), dt.int64)
        return self._integer(expr)

    def _integer(self, expr: sympy.Basic) -> Value:
        """Emit an integer of numbers that the program computes."""
        kind = type(expr)
        match expr:
            case sympy.Add():
                return self._chain("aten.add.Tensor", expr.args, 1)
            case sympy.Mul():
                return self._chain("aten.mul.Tensor", expr.args)
            case sympy.Pow(args=(base, sympy.Integer() as power)) if int(power) > 0:
                return self._chain("aten.mul.Tensor", [base] * int(power))
            case sympy.Abs():
                return self._whole("aten.abs.default", [self.value(expr.args[0])])
            case _ if kind in _INTEGERS:
                name, more = _INTEGERS[kind]
                return self._chain(name, expr.args, *more)
            case _ if kind in _EITHER:
                return self._chain(_EITHER[kind], expr.args)
        raise Unsupported(f"the number {expr} ({kind.__name__})", stage="capture")

    def _chain(self, name: str, args: Sequence[sympy.Basic], *more: Any) -> Value:
        return reduce(lambda a, b: self._whole(name, (a, b), *more), map(self.value, args))

    def _whole(self, name: str, operands: Sequence[Value], *more: Any) -> Value:
        """Emit an op on integers that raises where Python does, and where its result is over 2**62."""
        emitter = self.emitter
        emit, constant, cast = emitter.emit, emitter.constant, emitter.cast
        if name in _DIVIDING:
            emitter.check(emit("aten.ne.Tensor", dt.boolean, operands[1], constant(0, dt.int64)), "ZeroDivisionError")
        about = emit(name, dt.float64, *(cast(o, dt.float64) for o in operands), *more)
        size = emit("aten.abs.default", dt.float64, about)
        fits = emit("aten.le.Tensor", dt.boolean, size, constant(2.0**62, dt.float64))
        emitter.take(fits, "an int of the program is over 2**62")
        return emit(name, dt.int64, *operands, *more)


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
    return kind == "Tensor" or (kind == "number" and schema_of(func).name.removeprefix("aten::") in _COMPUTING)
