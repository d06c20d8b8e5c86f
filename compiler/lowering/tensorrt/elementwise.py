"""FlatIR's elementwise primitives: one layer each, for the types where TensorRT documents what FlatIR asks for.

What is not here is left to the shared legalizations: comparisons that TensorRT lacks, integer NEG, 16-bit types that go
through float32, and what TensorRT leaves open, like MAX of NaN, SIGN of NaN or the cast of 0.5 to BOOL.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.tensorrt.layer_table import LayerRow, lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.tensorrt import rules

UNARY = {
    "exp": "EXP", "log": "LOG", "sqrt": "SQRT", "sin": "SIN", "cos": "COS", "tan": "TAN", "asin": "ASIN",
    "acos": "ACOS", "atan": "ATAN", "sinh": "SINH", "cosh": "COSH", "asinh": "ASINH", "acosh": "ACOSH",
    "atanh": "ATANH", "erf": "ERF", "ceil": "CEIL", "floor": "FLOOR", "round": "ROUND", "abs": "ABS", "neg": "NEG",
    "not": "NOT", "sign": "SIGN",
}  # fmt: skip
BINARY = {
    "add": "SUM", "sub": "SUB", "mul": "PROD", "div": "DIV", "pow": "POW", "max": "MAX", "min": "MIN", "eq": "EQUAL",
    "lt": "LESS", "gt": "GREATER", "and": "AND", "or": "OR", "xor": "XOR",
}  # fmt: skip
# TensorRT says nothing of NaN here, FlatIR does: integers only.
SILENT_ON_NAN = ("SIGN", "MAX", "MIN")


def _types(layer: str, table: dict[str, frozenset[str]]) -> frozenset[str]:
    return table[layer] & rules.INTS if layer in SILENT_ON_NAN else table[layer]


def _unary(layer: str) -> LayerRow:
    return LayerRow(f"unary {layer}", _types(layer, rules.UNARY), lambda n, op, x: n.unary(layer, x))


def _binary(layer: str) -> LayerRow:
    types = _types(layer, rules.ELEMENTWISE)
    return LayerRow(f"elementwise {layer}", types, lambda n, op, a, b: n.binary(layer, a, b))


for _name, _layer in UNARY.items():
    lowers.add(_name, _unary(_layer))
for _name, _layer in BINARY.items():
    lowers.add(_name, _binary(_layer))


def _not_isnan(op: Operation) -> str | None:
    a, b = op.values
    return None if a is b else "TensorRT has EQUAL only"


@lowers("ne", "unary ISNAN", rules.UNARY["ISNAN"], _not_isnan)
def isnan(n: Network, op: Operation, x: Any, _: Any) -> Any:
    """x != x is the test for NaN; as EQUAL(x, x) an optimizer could take it for true."""
    return n.unary("ISNAN", x)


@lowers("tanh", "activation TANH", rules.LAYERS["Activation"])
def tanh(n: Network, op: Operation, x: Any) -> Any:
    return n.activation("TANH", x)


@lowers("sigmoid", "activation SIGMOID", frozenset({"FLOAT"}))
def sigmoid(n: Network, op: Operation, x: Any) -> Any:
    return n.activation("SIGMOID", x)


@lowers("gelu", "activation GELU_ERF or GELU_TANH", frozenset({"FLOAT"}))
def gelu(n: Network, op: Operation, x: Any) -> Any:
    """The two are documented as eager's formulas, which cancel below 0 as these do."""
    return n.activation("GELU_TANH" if op.attributes["approximate"] == "tanh" else "GELU_ERF", x)


@lowers("select", "select", rules.LAYERS["Select"])
def select(n: Network, op: Operation, predicate: Any, a: Any, b: Any) -> Any:
    return n.select(predicate, a, b)


def _to_bool(op: Operation) -> str | None:
    number = op.attributes["dtype"].is_bool and not next(op.values).dtype.is_bool
    return "TensorRT does not say which numbers are true" if number else None


@lowers("cast", "cast", rules.LAYERS["Cast"], _to_bool)
def cast(n: Network, op: Operation, x: Any) -> Any:
    return n.cast(x, rules.carrier(op.attributes["dtype"]))
