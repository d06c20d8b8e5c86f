"""Activations, by the formulas of eager's Activation.cpp. 16-bit floats are rounded once, at the end."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const, pointwise, stepwise, wrap_dim
from torchstone.compiler.transforms.expansions.core.comparison import clamp
from torchstone.compiler.transforms.expansions.core.elementwise import logistic
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.relu.default")
def relu(b: Expander, x: Value) -> Value:
    """0 below 0, else x; NaN and -0 stay."""
    return clamp(b, x, 0)


@expands("aten.hardtanh.default")
def hardtanh(b: Expander, x: Value, low: Any = -1, high: Any = 1) -> Value:
    return clamp(b, x, low, high)


@expands("aten.leaky_relu.default")
def leaky_relu(b: Expander, x: Value, slope: Any = 0.01) -> Value:
    """x above 0, else slope * x."""

    def formula(x: Value) -> Value:
        return b.select(b.gt(x, const(b, x, 0)), x, b.mul(x, const(b, x, slope)))

    return pointwise(b, formula, x)


@expands("aten._prelu_kernel.default")
def prelu(b: Expander, x: Value, weight: Value) -> Value:
    return pointwise(b, lambda x, w: b.select(b.gt(x, const(b, x, 0)), x, b.mul(w, x)), x, weight)


@expands("aten.elu.default")
def elu(b: Expander, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    """scale * x, or alpha * scale * (e**(input_scale * x) - 1) below 0."""

    def formula(x: Value) -> Value:
        below = b.mul(b.expm1(b.mul(x, const(b, x, input_scale))), const(b, x, alpha * scale))
        return b.select(b.lt(x, const(b, x, 0)), below, b.mul(x, const(b, x, scale)))

    return pointwise(b, formula, x)


@expands("aten.celu.default")
def celu(b: Expander, x: Value, alpha: Any = 1.0) -> Value:
    return elu(b, x, alpha, 1.0, 1.0 / float(alpha))


def _relu6_of_x_plus_3(b: Expander, x: Value) -> Value:
    return b.clamp(b.add(x, const(b, x, 3)), low=0.0, high=6.0)


@expands("aten.hardswish.default")
def hardswish(b: Expander, x: Value) -> Value:
    """x * min(max(x + 3, 0), 6) / 6."""
    return pointwise(b, lambda x: b.div(b.mul(x, _relu6_of_x_plus_3(b, x)), const(b, x, 6)), x)


_SIXTH = 0.1666666716337204  # float32(1 / 6)


@expands("aten.hardsigmoid.default")
def hardsigmoid(b: Expander, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6."""
    return pointwise(b, lambda x: b.div(_relu6_of_x_plus_3(b, x), const(b, x, 6)), x)


@expands("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(b: Expander, grad: Value, x: Value) -> Value:
    """A sixth of the gradient where the slope is: a float32 sixth in every dtype, as in eager's kernel."""

    def formula(grad: Value, x: Value) -> Value:
        slope = b.lt(b.abs(x), const(b, x, 3))
        return b.select(slope, b.mul(grad, const(b, x, _SIXTH)), const(b, x, 0))

    return pointwise(b, formula, grad, x)


@expands("aten.softplus.default")
def softplus(b: Expander, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """log(1 + e**(beta * x)) / beta; x itself where beta * x is above the threshold."""

    def formula(x: Value) -> Value:
        scaled, factor = b.mul(x, const(b, x, beta)), const(b, x, beta)
        return b.select(b.gt(scaled, const(b, x, threshold)), x, b.div(b.log1p(b.exp(scaled)), factor))

    return pointwise(b, formula, x)


@expands("aten.softshrink.default")
def softshrink(b: Expander, x: Value, lambd: Any = 0.5) -> Value:
    """x moved toward 0 by lambd, 0 within it; NaN stays."""

    def formula(x: Value) -> Value:
        shift = const(b, x, lambd)
        inside = b.and_(b.ge(x, b.neg(shift)), b.le(x, shift))
        return b.select(inside, const(b, x, 0), b.select(b.gt(x, shift), b.sub(x, shift), b.add(x, shift)))

    return pointwise(b, formula, x)


@expands("aten.hardshrink.default")
def hardshrink(b: Expander, x: Value, lambd: Any = 0.5) -> Value:
    """0 within [-lambd, lambd], else x; NaN stays."""

    def formula(x: Value) -> Value:
        inside = b.and_(b.ge(x, const(b, x, -lambd)), b.le(x, const(b, x, lambd)))
        return b.select(inside, const(b, x, 0), x)

    return stepwise(b, formula, x)


@expands("aten.hardshrink_backward.default", "aten.softshrink_backward.default")
def shrink_backward(b: Expander, grad: Value, x: Value, lambd: Any) -> Value:
    """0 where x is within [-lambd, lambd]; NaN is not."""

    def formula(grad: Value, x: Value) -> Value:
        inside = b.and_(b.ge(x, const(b, x, -lambd)), b.le(x, const(b, x, lambd)))
        return b.select(inside, const(b, grad, 0), grad)

    return stepwise(b, formula, grad, x)


@expands("aten.logit_backward.default")
def logit_backward(b: Expander, grad: Value, x: Value, eps: Any = None) -> Value:
    """grad / (x * (1 - x)). Beyond [0, 1] it is NaN; beyond [eps, 1 - eps], if eps is given and not below 0, it is 0.

    PyTorch's decomposition has 0 where x is NaN, and where eps is below 0.
    """
    bounded = eps is not None and eps >= 0
    low = const(b, x, eps if bounded else 0)
    high = b.sub(const(b, x, 1), low)  # rounded to the dtype, as in eager

    def formula(grad: Value, x: Value, low: Value, high: Value) -> Value:
        ends = b.or_(b.eq(x, const(b, x, 0)), b.eq(x, const(b, x, 1)))
        slope = b.div(grad, b.mul(x, b.sub(const(b, x, 1), x)))
        slope = b.select(ends, b.mul(grad, const(b, x, math.inf)), slope)
        outside = b.or_(b.lt(x, low), b.gt(x, high))
        return b.select(outside, const(b, x, 0 if bounded else math.nan), slope)

    return pointwise(b, formula, grad, x, low, high)


@expands("aten.threshold.default")
def threshold(b: Expander, x: Value, limit: Any, value: Any) -> Value:
    """x above the limit, else value; NaN stays."""
    return stepwise(b, lambda x: b.select(b.le(x, const(b, x, limit)), const(b, x, value), x), x)


@expands("aten.silu.default")
def silu(b: Expander, x: Value) -> Value:
    """x / (1 + e**-x)."""
    return pointwise(b, lambda x: b.mul(x, logistic(b, x)), x)


@expands("aten.mish.default")
def mish(b: Expander, x: Value) -> Value:
    """x tanh(log(1 + e**x))."""
    return pointwise(b, lambda x: b.mul(x, b.tanh(b.log1p(b.exp(x)))), x)


@expands("aten.log_sigmoid_forward.default")
def log_sigmoid(b: Expander, x: Value) -> tuple[Value, Value]:
    """min(x, 0) - log(1 + e**-|x|), and the buffer e**-|x| that eager keeps for the gradient."""

    def decay(x: Value) -> Value:
        return b.exp(b.neg(b.abs(x)))

    out = pointwise(b, lambda x: b.sub(b.min(x, const(b, x, 0)), b.log1p(decay(x))), x)
    kept = b.op.results[1].tensor
    buffer = pointwise(b, decay, x) if kept.shape == x.shape else b.full(0.0, kept.dims, kept.dtype)
    return out, buffer


@expands("aten.gelu.default")
def gelu(b: Expander, x: Value, approximate: str = "none") -> Value:
    """x/2 (1 + erf(x/√2)), or the documentation's formula with tanh."""
    return pointwise(b, lambda x: b.emit("gelu", x, approximate=approximate)[0], x)


@expands("aten.glu.default")
def glu(b: Expander, x: Value, dim: int = -1) -> Value:
    """The first half along dim, times the sigmoid of the second."""
    dim = wrap_dim(dim, x.rank)
    half = b.type.dims[dim]
    first, second = b.slice(x, dim, 0, half), b.slice(x, dim, half, x.shape[dim])
    return pointwise(b, lambda u, v: b.mul(u, logistic(b, v)), first, second)
