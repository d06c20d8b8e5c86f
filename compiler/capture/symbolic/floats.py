"""Python's arithmetic with run-time floats: one op for each operation, in the order in which Python does them.

sympy, in which PyTorch's symbols are written, computes with real numbers: to it a - a is 0, also where a is infinite,
a sum has no order, and constants fold. So it is shown no more than a symbol for each result.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from torchstone.compiler._torch.symbolic_shapes import (
    ProxyTorchDispatchMode,
    ShapeEnv,
    free_unbacked_symbols,
    math_functions,
    note_symbol,
)
from torchstone.compiler.capture.symbolic.numbers import NumberEmitter
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt

_ARITHMETIC: dict[Any, tuple[str, tuple[Any, ...]]] = {
    operator.add: ("aten.add.Tensor", (1,)),
    operator.sub: ("aten.sub.Tensor", (1,)),
    operator.mul: ("aten.mul.Tensor", ()),
    operator.truediv: ("aten.div.Tensor", ()),
    operator.neg: ("aten.neg.default", ()),
    operator.abs: ("aten.abs.default", ()),
    torch.sym_sqrt: ("aten.sqrt.default", ()),
}
# Of sizes alone, which are finite and not negative; where Python raises, the result is not finite.
_MATH = math_functions()
_OF_SIZES = {func: f"aten.{name}.default" for func, name in _MATH.items()} | {operator.pow: "aten.pow.Tensor_Tensor"}
# Python's ints of floats.
_WHOLE: dict[Any, str] = {
    math.trunc: "aten.trunc.default",
    math.floor: "aten.floor.default",
    math.ceil: "aten.ceil.default",
    round: "aten.round.default",
}
_AS_IT_IS = (torch.sym_float, operator.pos)
_RELATIONS = {getattr(operator, name): f"aten.{name}.Tensor" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# Floats have all integers up to here; Python compares an int with a float as they are, and divides so.
_EXACT = 1 << 53


def computes_with_floats(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Say whether an operation of Python takes or gives a float."""
    return func in (torch.sym_float, operator.truediv) or any(isinstance(a, float | torch.SymFloat) for a in args)


def compute(
    func: Callable[..., Any],
    args: Sequence[Any],
    number: Callable[[Any], Value],
    emitter: NumberEmitter,
    *,
    sized: bool,
    checked: bool,
    hints: Sequence[Any] = (),
) -> Value:
    """Emit one operation of Python on numbers and return its result, a float64[], an int64[] or a bool[].

    ``number`` gives the value of an argument that is no constant; where they are ``sized``, its ints are sizes, which
    floats have all of. Where it is ``checked``, an operation that Python raises for raises at run time. Unsupported for
    what is not one op, as // and % of floats. A power is within one ULP of Python's, and taken where the base is over 0
    for the example, which ``hints`` tell.
    """
    make = _Computation(number, emitter, sized, checked)
    if func in _RELATIONS:
        return make.relation(func, args)
    if func in _AS_IT_IS:
        return make.operand(*args)
    if func in _OF_SIZES and sized:
        return make.of_sizes(func, args)
    if func in _WHOLE and not any(isinstance(digits, int) for digits in args[1:]):
        return make.whole(func, args[0])
    if func is operator.pow and checked and all(isinstance(h, int | float) for h in hints) and _is_taken(hints):
        return make.power(*args)
    if func not in _ARITHMETIC:
        raise _unsupported(func, "of a run-time float")
    return make.arithmetic(func, args)


@dataclass(frozen=True, slots=True)
class _Computation:
    """The ops of ``compute``, and its arguments."""

    number: Callable[[Any], Value]
    emitter: NumberEmitter
    sized: bool
    checked: bool

    def operand(self, arg: Any) -> Value:
        """Return an argument as a float64[]; a run takes no int of which floats have none."""
        emitter = self.emitter
        if isinstance(arg, int | float):
            return emitter.constant(float(arg), dt.float64)
        value = self.number(arg)
        if value.dtype == dt.int64 and not self.sized:
            magnitude = emitter.emit("aten.abs.default", dt.int64, value)
            limit = emitter.constant(_EXACT, dt.int64)
            low = emitter.emit("aten.ge.Tensor", dt.boolean, magnitude, emitter.constant(0, dt.int64))
            high = emitter.emit("aten.le.Tensor", dt.boolean, magnitude, limit)
            small = emitter.emit("aten.logical_and.default", dt.boolean, low, high)
            emitter.take(small, "an int that is used as a float has to be one: it is over 2**53")
        return emitter.cast(value, dt.float64)

    def relation(self, func: Callable[..., Any], args: Sequence[Any]) -> Value:
        if any(isinstance(a, int | float) and _EXACT <= abs(a) < float("inf") for a in args):
            raise _unsupported(func, "with a number that may be an int no float is")
        return self.emitter.emit(_RELATIONS[func], dt.boolean, *map(self.operand, args))

    def of_sizes(self, func: Callable[..., Any], args: Sequence[Any]) -> Value:
        out = self.emitter.emit(_OF_SIZES[func], dt.float64, *map(self.operand, args))
        if self.checked:
            finite = self._is_finite(out)
            self.emitter.check(finite, f"Python's {_MATH.get(func, func.__name__)} raises for this size")
        return out

    def whole(self, func: Callable[..., Any], arg: Any) -> Value:
        """Return Python's int of a float; a run takes none over 2**62."""
        emitter = self.emitter
        whole = emitter.emit(_WHOLE[func], dt.float64, self.operand(arg))
        small = emitter.emit("aten.abs.default", dt.float64, whole)
        limit = emitter.constant(2.0**62, dt.float64)
        emitter.take(
            emitter.emit("aten.le.Tensor", dt.boolean, small, limit), "an int of a float over 2**62, or of none"
        )
        return emitter.cast(whole, dt.int64)

    def power(self, *args: Any) -> Value:
        emitter = self.emitter
        base, exponent = map(self.operand, args)
        positive = emitter.emit("aten.gt.Tensor", dt.boolean, base, emitter.constant(0.0, dt.float64))
        emitter.take(positive, "a power of a number that is not over 0")
        out = emitter.emit("aten.pow.Tensor_Tensor", dt.float64, base, exponent)
        emitter.take(self._is_finite(out), "a power that is not finite")
        return out

    def arithmetic(self, func: Callable[..., Any], args: Sequence[Any]) -> Value:
        name, more = _ARITHMETIC[func]
        values = [self.operand(arg) for arg in args]
        if func is operator.truediv and not (isinstance(args[1], int | float) and args[1]):
            self._refuse("aten.eq.Tensor", values[1], "ZeroDivisionError: division by zero")
        if func is torch.sym_sqrt:
            self._refuse("aten.lt.Tensor", values[0], "ValueError: expected a nonnegative input")
        return self.emitter.emit(name, dt.float64, *values, *more)

    def _refuse(self, relation: str, value: Value, message: str) -> None:
        """Have a run raise where a value is in this relation to 0, as Python does."""
        emitter = self.emitter
        if self.checked:
            bad = emitter.emit(relation, dt.boolean, value, emitter.constant(0.0, dt.float64))
            emitter.check(emitter.emit("aten.logical_not.default", dt.boolean, bad), message)

    def _is_finite(self, value: Value) -> Value:
        size = self.emitter.emit("aten.abs.default", dt.float64, value)
        return self.emitter.emit("aten.lt.Tensor", dt.boolean, size, self.emitter.constant(float("inf"), dt.float64))


def _is_taken(hints: Sequence[Any]) -> bool:
    base, exponent = hints
    try:
        return base > 0 and abs(base**exponent) < float("inf")
    except OverflowError:
        return False


def opaque(func: Callable[..., Any], env: ShapeEnv) -> torch.SymFloat | torch.SymInt | torch.SymBool:
    """Return a symbol for the result of an operation that ``compute`` has, of which sympy knows nothing."""
    with env.ignore_fresh_unbacked_symbols():
        if func in _WHOLE:
            return env.create_unbacked_symint()
        return env.create_unbacked_symbool() if func in _RELATIONS else env.create_unbacked_symfloat()


@contextlib.contextmanager
def traced_as_written() -> Iterator[None]:
    """Let PyTorch's tracer note each operation on run-time floats, and not the one whose sympy expression is equal.

    Unsupported for a program that has PyTorch check one: it does so by the expression.
    """
    kept = ProxyTorchDispatchMode.__sym_dispatch__
    made: list[tuple[ShapeEnv, sympy.Symbol]] = []

    def dispatch(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given = [a for a in args if isinstance(a, torch.SymInt | torch.SymFloat) and free_unbacked_symbols(a)]
        recorded = func in _RELATIONS or func in _ARITHMETIC
        if not given or not recorded or not computes_with_floats(func, args):
            return kept(self, func, types, args, kwargs)
        out = opaque(func, given[0].node.shape_env)
        made.extend((out.node.shape_env, symbol) for symbol in out.node.expr.free_symbols)
        note_symbol(self.tracer, func, args, out)
        return out

    ProxyTorchDispatchMode.__sym_dispatch__ = dispatch
    try:
        yield
    finally:
        ProxyTorchDispatchMode.__sym_dispatch__ = kept
    for env, symbol in made:
        asserted = (a.expr.free_symbols for asserts in env.deferred_runtime_asserts.values() for a in asserts)
        if symbol in env.replacements or any(symbol in symbols for symbols in asserted):
            raise Unsupported("torch._check of a run-time float", stage="capture")


def _unsupported(func: Callable[..., Any], what: str) -> Unsupported:
    return Unsupported(f"Python's {getattr(func, '__name__', func)} {what}", stage="capture")
