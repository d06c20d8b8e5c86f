"""Elementwise ATen ops. The formula of each op is in PyTorch's documentation of torch.<op>."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.contract.expansions.common import pointwise
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value

# ATen ops that are one primitive of the same meaning, in the result's dtype.
UNARY = ("exp", "sin", "cos", "sqrt")


def _unary(primitive: str):
    def rule(b: Expander, x: Value) -> Value:
        return pointwise(b, getattr(b, primitive), x)

    return rule


for _name in UNARY:
    expands.row(f"aten.{_name}.default", _unary(_name))


@expands("aten.add.Tensor", "aten.add.Scalar")
def add(b: Expander, x: Any, y: Any, alpha: Any = 1) -> Value:
    """x + alpha * y; of bools, x or y."""
    if b.type.dtype.is_bool:
        return pointwise(b, lambda x, y: b.or_(x, y), x, y)
    return pointwise(b, lambda x, y, a: b.add(x, y if alpha == 1 else b.mul(a, y)), x, y, alpha)
