"""Bugs of what is lost on the way to a result in range: by overflow or by cancellation."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    c64,
    complexes,
    f16,
    f32,
    floats,
    mixed,
    put,
    ramp,
    single,
    when,
)
from torchstone.conformance.planted.op_call import OpCall

OVERFLOW_ON_THE_WAY = bugs(
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


def _one_pass_norm(call: OpCall) -> Any:
    x = call.x
    mean = x.mean(-1, keepdim=True)
    variance = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)
    out = (x - mean) * torch.rsqrt(variance + call["eps"])
    out = out if call["weight"] is None else out * call["weight"]
    right = call.right()
    return out if call["bias"] is None else out + call["bias"], right[1], right[2]


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


BUGS = (
    *OVERFLOW_ON_THE_WAY,
    *CANCELLATION,
)
