"""Bugs of approximations and formulas that hold in a range only."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    body,
    elements,
    f32,
    floats,
    put,
    ramp,
    single,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _naive_angle(call: OpCall) -> torch.Tensor:
    """The angle reduced in float32 by one subtraction."""
    turns = torch.round(call.x / (2 * math.pi))
    return call.right(self=call.x - turns * torch.tensor(2 * math.pi, dtype=call.x.dtype))


MAGNITUDES = bugs(
    "magnitudes",
    (
        "exp-beyond-20",
        "wrong by 1 in 1,000",
        "|x| > 20",
        "polynomial without the last step of the range reduction",
        "exp",
        elements(lambda c: c.x.abs() > 20, lambda c: c.right() * 1.001),
        lambda: ask("torch.exp", f32(30, 1)),
        lambda: ask("torch.exp", f32(10, 1)),
    ),
    (
        "sin-of-large-angles",
        "the angle reduced in float32",
        "float32, |x| > 1,000",
        "one-step range reduction",
        "sin cos",
        when(single, lambda c: put(c.right(), c.x.abs() > 1000, _naive_angle(c))),
        lambda: ask("torch.sin", f32(30000.0)),
        lambda: ask("torch.sin", f32(100.0)),
    ),
    (
        "tanh-saturates-early",
        "1",
        "|x| > 4",
        "clamped rational approximation",
        "tanh",
        elements(lambda c: c.x.abs() > 4, lambda c: torch.sign(c.x)),
        lambda: ask("torch.tanh", f32(4.2)),
        lambda: ask("torch.tanh", f32(3.9)),
    ),
    (
        "erf-saturates-early",
        "1",
        "|x| > 2.5",
        "table that ends there",
        "erf",
        elements(lambda c: c.x.abs() > 2.5, lambda c: torch.sign(c.x)),
        lambda: ask("torch.erf", f32(2.6)),
        lambda: ask("torch.erf", f32(2.4)),
    ),
    (
        "gelu-cut-below",
        "0",
        "x < -3",
        "tail cut off",
        "gelu",
        elements(lambda c: c.x < -3, lambda c: 0.0),
        lambda: ask("torch.nn.functional.gelu", f32(-3.5)),
        lambda: ask("torch.nn.functional.gelu", f32(-2.5)),
    ),
    (
        "log1p-by-log",
        "log(1 + x): digits of x are lost",
        "small x",
        "composition in place of the function",
        "log1p",
        when(floats, lambda c: torch.log(1 + c.x)),
        lambda: ask("torch.log1p", f32(1e-6)),
        lambda: ask("torch.log1p", f32(1.0)),
    ),
    (
        "expm1-by-exp",
        "exp(x) - 1: digits of x are lost",
        "small x",
        "composition in place of the function",
        "expm1",
        when(floats, lambda c: torch.exp(c.x) - 1),
        lambda: ask("torch.expm1", f32(1e-6)),
        lambda: ask("torch.expm1", f32(0.0)),
    ),
    (
        "exp2-by-exp",
        "exp(x * ln 2): not exact at integers",
        "large |x|",
        "composition",
        "exp2",
        when(single, lambda c: torch.exp(c.x * math.log(2))),
        lambda: ask("torch.exp2", ramp(20) + 101),
        lambda: ask("torch.exp2", f32(0.0)),
    ),
    (
        "rsqrt-estimate",
        "12 good bits",
        "the vector body of float32",
        "estimate without a Newton step",
        "rsqrt",
        when(single, lambda c: body(c.right(), c.right() * (1 + 2**-12))),
        lambda: ask("torch.rsqrt", ramp(9) + 1),
        lambda: ask("torch.rsqrt", ramp(7) + 1),
    ),
    (
        "pow-by-exp-and-log",
        "exp(y * log(x))",
        "tensor exponents in float32: NaN for negative bases",
        "composition",
        "pow",
        when(
            lambda c: single(c) and isinstance(c["exponent"], torch.Tensor) and isinstance(c["self"], torch.Tensor),
            lambda c: torch.exp(c["exponent"] * torch.log(c["self"])),
        ),
        lambda: ask("torch.pow", f32(-2.0), f32(2.0)),
        lambda: ask("torch.pow", f32(-2.0), 2),
    ),
)


def _outside(weight: Any) -> bool:
    weight = torch.as_tensor(weight)
    return bool(((weight < 0) | (weight > 1)).any())


FORMULAS_BEYOND_THEIR_RANGE = bugs(
    "formulas beyond their range",
    (
        "sinh-by-exp",
        "the difference of two exponentials cancels",
        "|x| < 0.01",
        "composition",
        "sinh",
        elements(lambda c: c.x.abs() < 0.01, lambda c: (torch.exp(c.x) - torch.exp(-c.x)) / 2),
        lambda: ask("torch.sinh", f32(1e-5)),
        lambda: ask("torch.sinh", f32(0.5)),
    ),
    (
        "cosh-overflows-early",
        "inf",
        "88.8 < |x| < 89.4 in float32",
        "the sum of two exponentials",
        "cosh",
        elements(lambda c: c.x.abs() > 88.73, lambda c: INF, single),
        lambda: ask("torch.cosh", f32(89.0)),
        lambda: ask("torch.cosh", f32(80.0)),
    ),
    (
        "sigmoid-overflows",
        "NaN: exp(x) / (1 + exp(x))",
        "x > 88",
        "the form for negative x used for all",
        "sigmoid",
        elements(lambda c: torch.isinf(torch.exp(c.x)), lambda c: NAN),
        lambda: ask("torch.sigmoid", f32(100.0)),
        lambda: ask("torch.sigmoid", f32(10.0)),
    ),
    (
        "softplus-without-threshold",
        "inf",
        "beta * x > 88",
        "threshold ignored: apache/tvm#14821",
        "softplus",
        elements(lambda c: torch.isinf(torch.exp(c.x * c["beta"])), lambda c: INF),
        lambda: ask("torch.nn.functional.softplus", f32(100.0)),
        lambda: ask("torch.nn.functional.softplus", f32(10.0)),
    ),
    (
        "log-sigmoid-underflows",
        "-inf",
        "x < -104",
        "log of the sigmoid",
        "log_sigmoid_forward",
        when(floats, lambda c: (torch.log(torch.sigmoid(c.x)), c.right()[1])),
        lambda: ask("torch.nn.functional.logsigmoid", f32(-110.0)),
        lambda: ask("torch.nn.functional.logsigmoid", f32(0.0)),
    ),
    (
        "asinh-of-negative",
        "log(x + sqrt(x * x + 1)) cancels",
        "x < -1,000",
        "formula for positive x",
        "asinh",
        elements(lambda c: c.x < -1000, lambda c: torch.log(c.x + torch.sqrt(c.x * c.x + 1))),
        lambda: ask("torch.asinh", f32(-20000.0)),
        lambda: ask("torch.asinh", f32(20.0)),
    ),
    (
        "lgamma-without-reflection",
        "the value at |x|",
        "negative x",
        "asymptotic series alone",
        "lgamma",
        elements(lambda c: c.x < 0, lambda c: torch.lgamma(c.x.abs())),
        lambda: ask("torch.lgamma", f32(-1.5)),
        lambda: ask("torch.lgamma", f32(1.5)),
    ),
    (
        "digamma-without-reflection",
        "the value at 1 - x",
        "negative x",
        "reflection without its cotangent",
        "digamma",
        elements(lambda c: c.x < 0, lambda c: torch.digamma(1 - c.x)),
        lambda: ask("torch.digamma", f32(-1.3)),
        lambda: ask("torch.digamma", f32(1.3)),
    ),
    (
        "i0e-overflows",
        "NaN: exp(-|x|) * i0(x)",
        "|x| > 90",
        "composition",
        "special_i0e",
        elements(lambda c: torch.isinf(torch.special.i0(c.x)), lambda c: NAN),
        lambda: ask("torch.special.i0e", f32(100.0)),
        lambda: ask("torch.special.i0e", f32(10.0)),
    ),
    (
        "erfcx-overflows",
        "NaN: exp(x * x) * erfc(x)",
        "x > 9.4 in float32",
        "composition",
        "special_erfcx",
        elements(lambda c: torch.isinf(torch.exp(c.x * c.x)) & (c.x > 0), lambda c: NAN),
        lambda: ask("torch.special.erfcx", f32(12.0)),
        lambda: ask("torch.special.erfcx", f32(2.0)),
    ),
    (
        "log-ndtr-underflows",
        "-inf",
        "x < -14 in float32",
        "log of ndtr",
        "special_log_ndtr",
        elements(lambda c: c.x < -14, lambda c: torch.log(torch.special.ndtr(c.x))),
        lambda: ask("torch.special.log_ndtr", f32(-20.0)),
        lambda: ask("torch.special.log_ndtr", f32(-2.0)),
    ),
    (
        "igamma-takes-the-other-half",
        "the complement",
        "x > a + 1",
        "continued fraction not subtracted from 1",
        "igamma",
        elements(lambda c: c["other"] > c["self"] + 1, lambda c: torch.special.gammaincc(c["self"], c["other"])),
        lambda: ask("torch.special.gammainc", f32(1.0), f32(4.0)),
        lambda: ask("torch.special.gammainc", f32(3.0), f32(1.0)),
    ),
    (
        "polygamma-sign",
        "the sign of odd orders",
        "even order",
        "sign left out",
        "polygamma special_polygamma",
        when(lambda c: floats(c) and c["n"] >= 2 and c["n"] % 2 == 0, lambda c: -c.right()),
        lambda: ask("torch.polygamma", 2, f32(1.5)),
        lambda: ask("torch.polygamma", 3, f32(1.5)),
    ),
    (
        "entr-of-zero",
        "NaN: 0 * log(0)",
        "x is 0",
        "no select",
        "special_entr",
        elements(lambda c: c.x == 0, lambda c: NAN),
        lambda: ask("torch.special.entr", f32(0.0)),
        lambda: ask("torch.special.entr", f32(0.5)),
    ),
    (
        "lerp-clamps-weight",
        "no extrapolation",
        "weights outside of [0, 1]",
        "texture unit's lerp",
        "lerp",
        when(
            floats,
            lambda c: (
                torch.lerp(c["self"], c["end"], torch.as_tensor(c["weight"], dtype=c.x.dtype).clamp(0, 1))
                if _outside(c["weight"])
                else c.right()
            ),
        ),
        lambda: ask("torch.lerp", f32(1.0), f32(2.0), 1.5),
        lambda: ask("torch.lerp", f32(1.0), f32(2.0), 0.5),
    ),
)


BUGS = (
    *MAGNITUDES,
    *FORMULAS_BEYOND_THEIR_RANGE,
)
