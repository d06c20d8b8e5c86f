"""Elementwise composites."""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, body


@body("flat.clamp")
def clamp(b: Expander, x: Value, *, low: float, high: float) -> Value:
    """By comparisons, which are false for NaN and for two zeros; a bound that is infinite is none."""
    if low != -math.inf:
        x = b.select(b.lt(x, const(b, x, low)), const(b, x, low), x)
    if high != math.inf:
        x = b.select(b.gt(x, const(b, x, high)), const(b, x, high), x)
    return x


@body("flat.sigmoid")
def sigmoid(b: Expander, x: Value) -> Value:
    wide = opmath(x.dtype)
    if wide != x.dtype:
        return b.cast(b.sigmoid(b.cast(x, wide)), x.dtype)
    one = const(b, x, 1)
    return b.div(one, b.add(one, b.exp(b.neg(x))))


@body("flat.gelu")
def gelu(b: Expander, x: Value, *, approximate: str) -> Value:
    """By erfc, which does not cancel below 0, as 1 + erf does."""
    if approximate == "none":
        return b.mul(b.mul(x, const(b, x, 0.5)), b.erfc(b.mul(x, const(b, x, -math.sqrt(0.5)))))
    cube = b.mul(b.mul(x, x), x)
    inner = b.add(x, b.mul(const(b, x, 0.044715), cube))
    tanh = b.tanh(b.mul(const(b, x, math.sqrt(2 / math.pi)), inner))
    return b.mul(b.mul(const(b, x, 0.5), x), b.add(const(b, x, 1), tanh))
