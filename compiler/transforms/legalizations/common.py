"""What the legalizations share: registration with widening, declining, and formulas written as arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.ir import DType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.rules import Declined, Expander, Rule, legalizes

# Where a target has no op of the narrow dtype: the op in the wide one, cast back. Integers wrap to the same bits, and
# a 16-bit float is rounded once from float32, as the primitives say.
WIDER: dict[str, DType] = {
    "float16": dt.float32, "bfloat16": dt.float32, "int8": dt.int32, "int16": dt.int32, "uint8": dt.int32,
    "uint16": dt.int32, "uint32": dt.int64,
}  # fmt: skip


def legalization(*primitives: str) -> Callable[[Rule], Rule]:
    """Register a rule for primitives (names without ``flat.``) whose narrow dtypes are widened first."""

    def register(rule: Rule) -> Rule:
        for name in primitives:
            legalizes.row(f"flat.{name}", _widening(name, rule))
        return rule

    return register


def _widening(name: str, rule: Rule) -> Rule:
    def widened(b: Expander, *operands: Value, **attributes: Any) -> Any:
        narrow = operands[-1].dtype if operands else None
        wide = WIDER.get(narrow.name) if narrow else None
        if narrow is None or wide is None:
            return rule(b, *operands, **attributes)
        # The predicate of a select is no number: it keeps its dtype.
        (out,) = b.emit(name, *(x if x.dtype != narrow else b.cast(x, wide) for x in operands), **attributes)
        return b.cast(out, b.type.dtype)

    return widened


def only_wider(b: Expander, *operands: Value, **attributes: Any) -> Value:
    """The rule of primitives that are basic: nothing simpler computes them."""
    raise Declined


def needs(b: Expander, *dtypes: DType) -> None:
    """Decline unless the op's last operand has one of these dtypes."""
    if b.op.operands[-1].dtype not in dtypes:  # type: ignore[union-attr]
        raise Declined


class Formula:
    """A value of a graph under construction, written with operators: ``(x * x + 1.0).sqrt()``.

    Python numbers become constants of the value's dtype and shape. Comparisons give formulas of bool; ``&``, ``|`` and
    ``~`` combine them; ``where`` selects. Any elementwise primitive is a method.
    """

    __slots__ = ("b", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: Builder, value: Value) -> None:
        self.b = b
        self.value = value

    def of(self, other: Any) -> Value:
        """Return a value like this one for a formula, a value or a number."""
        if isinstance(other, Formula):
            return other.value
        return other if isinstance(other, Value) else self.b.full_like(self.value, other)

    def apply(self, name: str, *others: Any) -> Formula:
        (out,) = self.b.emit(name, self.value, *(self.of(o) for o in others))
        return Formula(self.b, out)

    def __getattr__(self, name: str) -> Callable[..., Formula]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *others: self.apply(name, *others)

    def __add__(self, other: Any) -> Formula:
        return self.apply("add", other)

    def __sub__(self, other: Any) -> Formula:
        return self.apply("sub", other)

    def __mul__(self, other: Any) -> Formula:
        return self.apply("mul", other)

    def __truediv__(self, other: Any) -> Formula:
        return self.apply("div", other)

    def __radd__(self, other: Any) -> Formula:
        return Formula(self.b, self.of(other)).apply("add", self)

    def __rsub__(self, other: Any) -> Formula:
        return Formula(self.b, self.of(other)).apply("sub", self)

    def __rmul__(self, other: Any) -> Formula:
        return Formula(self.b, self.of(other)).apply("mul", self)

    def __rtruediv__(self, other: Any) -> Formula:
        return Formula(self.b, self.of(other)).apply("div", self)

    def __neg__(self) -> Formula:
        return self.apply("neg")

    def __eq__(self, other: Any) -> Formula:
        return self.apply("eq", other)

    def __ne__(self, other: Any) -> Formula:
        return self.apply("ne", other)

    def __lt__(self, other: Any) -> Formula:
        return self.apply("lt", other)

    def __le__(self, other: Any) -> Formula:
        return self.apply("le", other)

    def __gt__(self, other: Any) -> Formula:
        return self.apply("gt", other)

    def __ge__(self, other: Any) -> Formula:
        return self.apply("ge", other)

    def __and__(self, other: Any) -> Formula:
        return self.apply("and", other)

    def __or__(self, other: Any) -> Formula:
        return self.apply("or", other)

    def __invert__(self) -> Formula:
        return self.apply("not")

    def where(self, a: Any, b: Any) -> Formula:
        """Return ``a`` where this predicate holds, else ``b``; one of them may be a number."""
        like = a if isinstance(a, Formula) else b
        (out,) = self.b.emit("select", self.value, like.of(a), like.of(b))
        return Formula(self.b, out)

    def is_nan(self) -> Formula:
        return self != self

    def with_sign_of(self, other: Formula) -> Formula:
        """Return this value, never negative, with the sign of ``other``; a zero or NaN ``other`` gives itself."""
        return (other > 0.0).where(self, (other < 0.0).where(-self, other))

    def polynomial(self, coefficients: Sequence[float]) -> Formula:
        """Return c[0] x**n + … + c[n], by Horner's scheme."""
        total = self * coefficients[0] + coefficients[1]
        for coefficient in coefficients[2:]:
            total = total * self + coefficient
        return total


# By primitive and dtype, how far each formula is from the truth, in ULPs, when the primitives it uses give the nearest
# number; 0 is exact. A target whose primitives are further off is further off by what they are.
BOUNDS: dict[tuple[str, str], float] = {}
_FORMULAS: dict[tuple[str, str], Callable[..., Formula]] = {}


def formula(
    primitive: str, *, ulps: float, dtypes: Sequence[DType] = (dt.float32,)
) -> Callable[[Callable[..., Formula]], Callable[..., Formula]]:
    """Register a rule written on formulas, for these dtypes (16-bit floats go through float32).

    ``ulps`` bounds its error; the tests hold it to that over every exponent, infinities and NaN included.
    """

    def register(fn: Callable[..., Formula]) -> Callable[..., Formula]:
        if all(name != primitive for name, _ in _FORMULAS):
            legalization(primitive)(rule)
        for dtype in dtypes:
            BOUNDS[primitive, dtype.name], _FORMULAS[primitive, dtype.name] = ulps, fn
        return fn

    def rule(b: Expander, *operands: Value) -> Value:
        fn = _FORMULAS.get((primitive, operands[-1].dtype.name))
        if fn is None:
            raise Declined
        return fn(*(Formula(b, x) for x in operands)).value

    return register
