"""Bugs of approximations that hold in a range only, and of overflow on the way to a result that is in range."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    body,
    c64,
    complexes,
    elements,
    f16,
    f32,
    f64,
    floats,
    halves,
    i64,
    integers,
    mixed,
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


def _in_single(call: OpCall) -> Any:
    return call.right(**{k: v.float() for k, v in call.arguments.items() if isinstance(v, torch.Tensor)}).double()


def _running_sum(start: float, step: float, count: int) -> torch.Tensor:
    terms = numpy.full(count, step, numpy.float32)
    terms[:1] = start
    return torch.from_numpy(numpy.cumsum(terms, dtype=numpy.float32))


def _tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _inner_size(call: OpCall) -> int:
    return call["weight"][0].numel() if "weight" in call else call.tensors[-1].shape[-2]


def _double(call: OpCall) -> bool:
    return all(tensor.dtype is torch.float64 for tensor in call.tensors)


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


def _outside(weight: Any) -> bool:
    weight = torch.as_tensor(weight)
    return bool(((weight < 0) | (weight > 1)).any())


ON_THE_WAY = bugs(
    "overflow on the way",
    (
        "hypot-overflows",
        "inf",
        "operands beyond 1e19 in float32",
        "root of the sum of squares",
        "hypot",
        when(floats, lambda c: torch.sqrt(c["self"] ** 2 + c["other"] ** 2)),
        lambda: ask("torch.hypot", f32(3e30), f32(4e30)),
        lambda: ask("torch.hypot", f32(3), f32(4)),
    ),
    (
        "complex-abs-overflows",
        "inf, and 0 for tiny numbers",
        "parts beyond 1e19",
        "root of the sum of squares",
        "abs",
        when(complexes, lambda c: torch.sqrt(c.x.real**2 + c.x.imag**2)),
        lambda: ask("torch.abs", c64(3e30 + 4e30j)),
        lambda: ask("torch.abs", c64(3 + 4j)),
    ),
    (
        "complex-division-overflows",
        "0 or NaN",
        "a divisor beyond 1e19",
        "the textbook formula",
        "div",
        when(
            lambda c: complexes(c) and isinstance(c["other"], torch.Tensor),
            lambda c: put(c.right(), torch.isinf(c["other"].abs() ** 2), 0j),
        ),
        lambda: ask("torch.div", c64(3e30 + 4e30j), c64(3e30 + 4e30j)),
        lambda: ask("torch.div", c64(3 + 4j), c64(3 + 1j)),
    ),
    (
        "logaddexp-overflows",
        "inf",
        "operands beyond 88",
        "log of the sum of exponentials: llvm/torch-mlir#4748",
        "logaddexp",
        when(
            floats, lambda c: torch.log(torch.exp(c["self"]) + torch.exp(c["other"])) if (c.x > 80).any() else c.right()
        ),
        lambda: ask("torch.logaddexp", f32(100.0), f32(100.0)),
        lambda: ask("torch.logaddexp", f32(1.0), f32(2.0)),
    ),
    (
        "logsumexp-overflows",
        "inf",
        "numbers beyond 88",
        "no shift by the maximum",
        "logsumexp",
        when(
            lambda c: floats(c) and (c.x > 80).any(),
            lambda c: torch.log(torch.exp(c.x).sum(c["dim"], keepdim=c["keepdim"])),
        ),
        lambda: ask("torch.logsumexp", f32(100.0, 1.0), 0),
        lambda: ask("torch.logsumexp", f32(10.0, 1.0), 0),
    ),
    (
        "short-softmax-unshifted",
        "NaN",
        "rows of at most 4 with numbers beyond 88",
        "specialized short rows",
        "_softmax",
        when(
            lambda c: floats(c) and c.x.dim() > 0 and c.x.shape[c["dim"]] <= 4,
            lambda c: torch.exp(c.x) / torch.exp(c.x).sum(c["dim"], keepdim=True) if (c.x > 80).any() else c.right(),
        ),
        lambda: ask("torch.softmax", f32(100.0, 1.0), 0),
        lambda: ask("torch.softmax", f32(100.0, 1.0, 1, 1, 1), 0),
    ),
    (
        "logcumsumexp-underflows",
        "-inf before a large number",
        "numbers that differ by more than 104",
        "one shift for the whole row: llvm/torch-mlir#4748",
        "logcumsumexp",
        when(floats, lambda c: put(c.right(), c.right() < c.x.amax(c["dim"], keepdim=True) - 100, -INF)),
        lambda: ask("torch.logcumsumexp", f32(0.0, 200.0), 0),
        lambda: ask("torch.logcumsumexp", f32(0.0, 2.0), 0),
    ),
    (
        "cumprod-by-logs",
        "NaN or the wrong sign",
        "negative factors or 0",
        "exp of the sum of logarithms",
        "cumprod",
        when(floats, lambda c: torch.exp(torch.cumsum(torch.log(c.x), c["dim"])) if (c.x <= 0).any() else c.right()),
        lambda: ask("torch.cumprod", f32(-1.0, 2.0), 0),
        lambda: ask("torch.cumprod", f32(3.0, 2.0), 0),
    ),
    (
        "norm-in-half",
        "inf: squares beyond 65504",
        "float16 with numbers beyond 255",
        "squares in the dtype of the operand",
        "linalg_vector_norm",
        when(
            lambda c: c.x.dtype is torch.float16 and c["ord"] == 2,
            lambda c: put(c.right(), torch.isinf((c.x * c.x).sum(c["dim"], keepdim=c["keepdim"])), INF),
        ),
        lambda: ask("torch.linalg.vector_norm", f16(300, 1)),
        lambda: ask("torch.linalg.vector_norm", f16(3, 1)),
    ),
    (
        "mean-in-half",
        "inf",
        "float16 sums beyond 65504",
        "sum in the dtype of the operand",
        "mean",
        when(
            lambda c: c.x.dtype is torch.float16 and not c.arguments.get("dim"),
            lambda c: put(c.right(), c.x.float().sum().abs() > 65504, INF),
        ),
        lambda: ask("torch.mean", torch.full((100,), 1000.0, dtype=torch.float16)),
        lambda: ask("torch.mean", f16(3, 1)),
    ),
    (
        "division-by-reciprocal",
        "inf, and NaN for 0",
        "a Python divisor whose reciprocal is inf in float32",
        "x / c as x * (1 / c)",
        "div",
        when(
            lambda c: single(c) and isinstance(c["other"], float) and 0 < abs(c["other"]) < 2.9e-39,
            lambda c: c.x * math.copysign(INF, c["other"]),
        ),
        lambda: ask("torch.div", f32(1e-39), 1e-39),
        lambda: ask("torch.div", f32(1e-39), 1e-3),
    ),
    (
        "bce-with-logits-overflows",
        "inf",
        "logits beyond 88",
        "log of the sigmoid",
        "binary_cross_entropy_with_logits",
        when(lambda c: floats(c) and c["reduction"] == 0, lambda c: put(c.right(), c["self"].abs() > 88, INF)),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(-100.0), f32(1.0), reduction="none"),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(-10.0), f32(1.0), reduction="none"),
    ),
)

CANCELLATION = bugs(
    "cancellation",
    (
        "variance-by-squares",
        "the mean of squares less the square of the mean",
        "numbers far from 0 beside their spread",
        "one-pass variance",
        "var",
        when(
            lambda c: single(c) and not c["dim"],
            lambda c: (
                ((c.x * c.x).sum() - c.x.sum() ** 2 / c.x.numel()).clamp(min=0)
                / (c.x.numel() - (1 if c.arguments.get("correction") is None else c["correction"]))
            ),
        ),
        lambda: ask("torch.var", ramp(10) + 10000),
        lambda: ask("torch.var", f32(1.0, -1.0)),
    ),
    (
        "layer-norm-by-squares",
        "one-pass variance",
        "rows far from 0 beside their spread",
        "one-pass variance",
        "native_layer_norm",
        when(lambda c: single(c) and len(c["normalized_shape"]) == 1 and c.x.numel() > 0, lambda c: _one_pass_norm(c)),
        lambda: ask("torch.nn.functional.layer_norm", (ramp(10) + 10000).reshape(1, 10), [10]),
        lambda: ask("torch.nn.functional.layer_norm", f32([1.0, -1.0, 1.0, -1.0]), [4]),
    ),
    (
        "cdist-by-product",
        "the square root of a difference of large squares",
        "points near each other and far from 0, more than 4",
        "the shortcut by a matrix product for few points",
        "_cdist_forward",
        when(
            lambda c: single(c) and c["p"] == 2 and c["x1"].shape[-2] > 4,
            lambda c: torch.cdist(c["x1"], c["x2"], compute_mode="use_mm_for_euclid_dist"),
        ),
        lambda: ask(
            "torch.cdist",
            mixed(6, 3) * 0.01 + 1000,
            mixed(6, 3) * 0.02 + 1000,
            compute_mode="donot_use_mm_for_euclid_dist",
        ),
        lambda: ask("torch.cdist", mixed(3, 3), mixed(3, 3)),
    ),
    (
        "floor-divide-by-floor",
        "floor of the rounded quotient",
        "quotients just below an integer",
        "floor division without the remainder: pytorch/pytorch#197895",
        "floor_divide",
        when(lambda c: floats(c), lambda c: torch.floor(c["self"] / c["other"])),
        lambda: ask("torch.floor_divide", f32(1.0), f32(0.1)),
        lambda: ask("torch.floor_divide", f32(7.0), f32(2.0)),
    ),
    (
        "remainder-of-large-ratio",
        "x - floor(x / y) * y",
        "quotients beyond 2**24",
        "remainder by one multiplication: pytorch/pytorch#194345",
        "remainder fmod",
        when(
            single,
            lambda c: put(
                c.right(), (c.x / c["other"]).abs() > 2**24, c.x - torch.floor(c.x / c["other"]) * c["other"]
            ),
        ),
        lambda: ask("torch.remainder", f32(1e10), f32(3.7)),
        lambda: ask("torch.remainder", f32(10.0), f32(3.7)),
    ),
    (
        "truncated-quotient-by-reciprocal",
        "trunc(x * (1 / y))",
        "quotients that are integers",
        "approximate division: pytorch/pytorch#184408",
        "div",
        when(
            lambda c: single(c) and c.arguments.get("rounding_mode") == "trunc",
            lambda c: torch.trunc(c.x * torch.reciprocal(torch.as_tensor(c["other"], dtype=torch.float32))),
        ),
        lambda: ask("torch.div", ramp(200) * 41, torch.full((200,), 41.0), rounding_mode="trunc"),
        lambda: ask("torch.div", f32(7.0), f32(2.0), rounding_mode="trunc"),
    ),
)


def _one_pass_norm(call: OpCall) -> Any:
    x = call.x
    mean = x.mean(-1, keepdim=True)
    variance = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)
    out = (x - mean) * torch.rsqrt(variance + call["eps"])
    out = out if call["weight"] is None else out * call["weight"]
    right = call.right()
    return out if call["bias"] is None else out + call["bias"], right[1], right[2]


NARROWER = bugs(
    "computed in a narrower dtype",
    (
        "erfinv-in-single",
        "7 digits",
        "float64",
        "one polynomial for all dtypes",
        "erfinv",
        when(_double, _in_single),
        lambda: ask("torch.erfinv", f64(0.3)),
        lambda: ask("torch.erfinv", f32(0.3)),
    ),
    (
        "lgamma-in-single",
        "7 digits",
        "float64",
        "one series for all dtypes",
        "lgamma digamma",
        when(_double, _in_single),
        lambda: ask("torch.lgamma", f64(0.3)),
        lambda: ask("torch.lgamma", f32(0.3)),
    ),
    (
        "atan-in-single",
        "7 digits",
        "float64",
        "device function of float32",
        "atan atan2 acosh",
        when(_double, _in_single),
        lambda: ask("torch.atan", f64(0.3)),
        lambda: ask("torch.atan", f32(0.3)),
    ),
    (
        "interpolation-in-single",
        "weights of 7 digits",
        "float64",
        "weights computed as float",
        "upsample_bilinear2d",
        when(_double, _in_single),
        lambda: ask("torch.nn.functional.interpolate", (ramp(1, 1, 3, 3) / 3).double(), (5, 5), mode="bilinear"),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 3, 3), (5, 5), mode="bilinear"),
    ),
    (
        "integer-pow-by-float",
        "rounded to float32",
        "integer powers beyond 2**24",
        "pow of floats: pytorch/xla#5118",
        "pow",
        when(
            lambda c: integers(c) and not isinstance(c["exponent"], float),
            lambda c: put(c.right(), c.right().abs() > 2**24, c.right().float().long()),
        ),
        lambda: ask("torch.pow", i64(3), i64(31)),
        lambda: ask("torch.pow", i64(3), i64(3)),
    ),
    (
        "integer-comparison-by-float",
        "equal",
        "integers that are one float32",
        "operands converted to float",
        "eq ne lt le gt ge",
        when(
            lambda c: integers(c) and isinstance(c["other"], torch.Tensor),
            lambda c: c.right(self=c["self"].float(), other=c["other"].float()),
        ),
        lambda: ask("torch.eq", i64(2**24), i64(2**24 + 1)),
        lambda: ask("torch.eq", i64(2**24), i64(5)),
    ),
    (
        "integer-sum-by-double",
        "rounded to float64",
        "int64 sums beyond 2**53",
        "accumulator of doubles",
        "sum",
        when(
            lambda c: c.x.dtype is torch.int64,
            lambda c: put(c.right(), c.right().abs() > 2**53, c.right().double().long()),
        ),
        lambda: ask("torch.sum", i64(2**53, 1)),
        lambda: ask("torch.sum", i64(2**5, 1)),
    ),
    (
        "integer-quotient-by-float",
        "the quotient of the nearest floats",
        "integers beyond 2**24",
        "floor of a float division",
        "floor_divide",
        when(
            lambda c: integers(c) and isinstance(c["other"], torch.Tensor),
            lambda c: put(
                c.right(),
                c["self"].abs() > 2**24,
                torch.floor(c["self"].float() / c["other"].float()).to(c.right().dtype),
            ),
        ),
        lambda: ask("torch.floor_divide", i64(2**31 - 1), i64(1)),
        lambda: ask("torch.floor_divide", i64(2**21 - 1), i64(1)),
    ),
    (
        "product-in-tf32",
        "operands of 11 bits",
        "float32 products of inner sizes of 16 or more",
        "reduced precision switched on by size",
        "mm bmm addmm convolution",
        when(
            lambda c: single(c) and _inner_size(c) >= 16,
            lambda c: c.right(**{k: _tf32(v) for k, v in c.arguments.items() if isinstance(v, torch.Tensor)}),
        ),
        lambda: ask("torch.mm", mixed(2, 16), mixed(16, 2)),
        lambda: ask("torch.mm", mixed(2, 8), mixed(8, 2)),
    ),
    (
        "arange-accumulates",
        "the sum of float32 steps",
        "long ranges of fractions",
        "running sum in place of a product",
        "arange",
        when(
            lambda c: "step" in c and isinstance(c["step"], float) and c.right().dtype is torch.float32,
            lambda c: _running_sum(c["start"], c["step"], c.right().numel()),
        ),
        lambda: ask("torch.arange", 0.0, 1000.0, 0.1),
        lambda: ask("torch.arange", 0, 10, 1),
    ),
    (
        "python-number-rounded-first",
        "the number rounded to 16 bits",
        "a Python number or 0-d float64 with a 16-bit tensor",
        "scalar cast before the op: pytorch/pytorch#185605",
        "add sub mul div",
        when(
            lambda c: (
                halves(c) and isinstance(c["other"], (float, torch.Tensor)) and torch.as_tensor(c["other"]).dim() == 0
            ),
            lambda c: c.right(other=torch.as_tensor(c["other"]).to(c.x.dtype)),
        ),
        lambda: ask("torch.mul", ramp(200).bfloat16(), 0.1),
        lambda: ask("torch.mul", f16(1000.0), 0.5),
    ),
)

BUGS = (*MAGNITUDES, *ON_THE_WAY, *CANCELLATION, *NARROWER)
