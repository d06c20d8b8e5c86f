"""Elementary functions by other formulas."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.control import replacing
from torchstone.conformance.controls.operands import accumulator, elementwise, in_float64, two_product

LOG2_E = math.log2(math.e)
LOG2_E_REST = 2.0355273740931033e-17
"""What float64 loses of log2(e)."""


def exp_by_exp2(x: Tensor) -> Tensor:
    """``exp2(x * log2(e))``, the product with what it lost in rounding."""
    product, lost = two_product(x, torch.full_like(x, LOG2_E))
    # Past the range of the result the product loses more than a correction of it can be.
    lost = torch.where(torch.isfinite(x), lost + x * LOG2_E_REST, 0.0).clamp(-1e-3, 1e-3)
    return torch.exp2(product) * (1.0 + lost * math.log(2.0))


def sigmoid_by_exp2(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + exp_by_exp2(-x))


def cosh_by_exp2(x: Tensor) -> Tensor:
    """The square of half the exponent does not overflow before the result does."""
    half = exp_by_exp2(x.abs() / 2.0)
    return half / 2.0 * half + 0.5 / half / half


def tanh_by_expm1(x: Tensor) -> Tensor:
    t = torch.expm1(-2.0 * x.abs())
    return torch.copysign(-t / (t + 2.0), x)


def sinh_by_expm1(x: Tensor) -> Tensor:
    t = torch.expm1(x.abs())
    large = torch.exp(x.abs() / 2.0)
    return torch.copysign(torch.where(t < 1e6, (t + t / (t + 1.0)) / 2.0, large / 2.0 * large), x)


def atanh_by_log1p(x: Tensor) -> Tensor:
    a = x.abs()
    return torch.copysign(torch.log1p(2.0 * a / (1.0 - a)) / 2.0, x)


def asinh_by_log1p(x: Tensor) -> Tensor:
    a = x.abs()
    small = torch.log1p(a + a * a / (1.0 + torch.sqrt(a * a + 1.0)))
    return torch.copysign(torch.where(a > 1e8, torch.log(a) + math.log(2.0), small), x)


def acosh_by_log1p(x: Tensor) -> Tensor:
    t = x - 1.0
    small = torch.log1p(t + torch.sqrt(2.0 * t + t * t))
    out = torch.where(x > 1e8, torch.log(x) + math.log(2.0), small)
    return torch.where(x < 1.0, torch.nan, out)


def log1p_by_log(x: Tensor) -> Tensor:
    """Kahan's formula: what rounds in ``1 + x`` is divided out again."""
    u = 1.0 + x
    out = torch.where(u == 1.0, x, torch.log(u) * (x / (u - 1.0)))
    return torch.where(torch.isinf(x), torch.log(u), out)


def expm1_by_exp(x: Tensor) -> Tensor:
    u = torch.exp(x)
    out = (u - 1.0) * (x / torch.log(u))
    out = torch.where((u == 1.0) | torch.isnan(x), x, torch.where(u - 1.0 == -1.0, -1.0, out))
    return torch.where(torch.isinf(u), u, out)


def softplus(x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    z = x * beta
    soft = (z.clamp_min(0.0) + torch.log1p(torch.exp(-z.abs()))) / beta
    return torch.where(z > threshold, x, soft)


def log2_by_log(x: Tensor) -> Tensor:
    return torch.log(x) * LOG2_E


def log10_by_log(x: Tensor) -> Tensor:
    return torch.log(x) * math.log10(math.e)


def _divisible(x: Any, y: Any) -> torch.dtype | None:
    """The dtype of a quotient of real numbers, one of them a tensor."""
    if not any(isinstance(each, Tensor) for each in (x, y)):
        return None
    dtype = torch.result_type(x, y)
    if dtype.is_complex:
        return None
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def div_by_reciprocal(x: Any, y: Any) -> Any:
    dtype = _divisible(x, y)
    if dtype is None:
        return NotImplemented
    wide, tiny = accumulator(dtype), torch.finfo(dtype).smallest_normal
    x, y = (torch.as_tensor(each).to(wide) for each in (x, y))
    reciprocal = 1.0 / y
    out = x * reciprocal
    normal = torch.isfinite(reciprocal) & (reciprocal.abs() >= tiny) & torch.isfinite(out) & (out.abs() >= tiny)
    return torch.where(normal, out, x / y).to(dtype)


def pow_by_logarithm(x: Any, y: Any) -> Any:
    """``exp(y * log(x))`` in float64, for positive numbers of at most 32 bits; of others, the overload that is asked.

    Eager's own overloads differ: of minus infinity to 0.5 it is NaN by ``sqrt`` of a number, infinity of a tensor.
    """
    dtype = _divisible(x, y)
    if dtype is None or dtype is torch.float64 or not torch.result_type(x, y).is_floating_point:
        return NotImplemented
    base, exponent = (torch.as_tensor(each).to(accumulator(dtype)).double() for each in (x, y))
    usual = (base > 0) & torch.isfinite(base) & torch.isfinite(exponent)
    tensors = [isinstance(each, torch.Tensor) for each in (x, y)]
    unusual = torch.pow(base if tensors[0] else x, exponent if tensors[1] else y)
    return torch.where(usual, torch.exp(exponent * torch.log(base)), unusual).to(dtype)


CONTROLS = (
    replacing(
        "exp_by_exp2",
        "exp(x) = exp2(x log2(e)), the product kept to more digits than the dtype has: within a few ULPs of eager.",
        {
            "exp": in_float64(exp_by_exp2),
            "sigmoid": in_float64(sigmoid_by_exp2),
            "cosh": in_float64(cosh_by_exp2),
        },
    ),
    replacing(
        "functions_by_log1p",
        "Hyperbolic functions, their inverses and softplus by log1p and expm1: within a few ULPs of eager.",
        {
            "tanh": elementwise(tanh_by_expm1),
            "sinh": in_float64(sinh_by_expm1),
            "atanh": elementwise(atanh_by_log1p),
            "asinh": in_float64(asinh_by_log1p),
            "acosh": in_float64(acosh_by_log1p),
            "softplus": elementwise(softplus, integers=False),
        },
    ),
    replacing(
        "functions_by_log",
        "log1p and expm1 by Kahan's formulas, log2 and log10 by the natural logarithm: within a few ULPs of eager.",
        {
            "log1p": elementwise(log1p_by_log),
            "expm1": elementwise(expm1_by_exp),
            "log2": elementwise(log2_by_log),
            "log10": elementwise(log10_by_log),
        },
    ),
    replacing(
        "division_by_reciprocal",
        "x / y = x (1 / y), off by at most 2 ULPs where neither is near the end of the range; 16-bit numbers are "
        "multiplied in float32, and so are the nearest ones.",
        {"div.Tensor": div_by_reciprocal},
    ),
    replacing(
        "pow_by_logarithm",
        "Powers of positive numbers as exp(y log(x)), in float64 and rounded once: as close to float64 as can be.",
        {
            "pow.Tensor_Tensor": pow_by_logarithm,
            "pow.Tensor_Scalar": pow_by_logarithm,
            "pow.Scalar": pow_by_logarithm,
        },
    ),
)
