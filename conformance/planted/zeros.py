"""Bugs with infinities and zeros of both signs, one tensor given twice, and subnormal numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    argument,
    c64,
    complexes,
    elements,
    f32,
    floats,
    put,
    same_twice,
    single,
    when,
)
from torchstone.conformance.planted.op_call import OpCall

ZEROS_AND_INFINITIES = bugs(
    "zeros and infinities",
    (
        "mul-by-zero-folded",
        "0, whatever the other factor",
        "a Python 0",
        "constant folding of a product with 0",
        "mul",
        when(
            lambda c: not isinstance(c["other"], torch.Tensor) and c["other"] == 0 and floats(c),
            lambda c: torch.zeros_like(c.right()),
        ),
        lambda: ask("torch.mul", f32(INF, 1), 0),
        lambda: ask("torch.mul", f32(INF, 1), 2),
    ),
    (
        "add-zero-folded",
        "x as it is: -0 + 0 is 0",
        "a Python 0",
        "x + 0 taken for x: pytorch/pytorch#189799",
        "add",
        when(
            lambda c: not isinstance(c["other"], torch.Tensor) and c["other"] == 0 and floats(c), lambda c: c.x.clone()
        ),
        lambda: ask("torch.add", f32(-0.0, 1), 0),
        lambda: ask("torch.add", f32(-0.0, 1), 1),
    ),
    (
        "ceil-loses-zero-sign",
        "0 for numbers in (-1, 0]",
        "always",
        "conversion to integer and back",
        "ceil",
        when(floats, lambda c: c.right() + 0.0),
        lambda: ask("torch.ceil", f32(-0.5)),
        lambda: ask("torch.ceil", f32(1.5)),
    ),
    (
        "trunc-through-int32",
        "numbers beyond 2**31 saturate",
        "float32 and float64",
        "truncation by an integer conversion",
        "trunc",
        elements(lambda c: c.x.abs() > 2**31, lambda c: torch.sign(c.x) * 2**31),
        lambda: ask("torch.trunc", f32(1e10, 1.5)),
        lambda: ask("torch.trunc", f32(1e5, 1.5)),
    ),
    (
        "xlogy-of-two-zeros",
        "NaN: 0 times -inf",
        "both 0",
        "xlogy without its select",
        "xlogy",
        when(
            floats,
            lambda c: put(c.right(), (torch.as_tensor(c["self"]) == 0) & (torch.as_tensor(c["other"]) == 0), NAN),
        ),
        lambda: ask("torch.xlogy", f32(0, 1), f32(0, 2)),
        lambda: ask("torch.xlogy", f32(0, 1), f32(3, 2)),
    ),
    (
        "nan-to-num-keeps-finite",
        "an infinity asked for becomes the greatest number",
        "posinf or neginf is infinite",
        "infinite replacements not provided for: pytorch/xla#8674",
        "nan_to_num",
        argument(lambda c: c["posinf"] is not None and math.isinf(c["posinf"]), posinf=None),
        lambda: ask("torch.nan_to_num", f32(INF), 0.0, INF),
        lambda: ask("torch.nan_to_num", f32(INF), 0.0, 1.0),
    ),
    (
        "logaddexp-of-infinities",
        "NaN: inf - inf",
        "both operands the same infinity",
        "the difference without a guard",
        "logaddexp",
        when(floats, lambda c: put(c.right(), torch.isinf(c["self"]) & (c["self"] == c["other"]), NAN)),
        lambda: ask("torch.logaddexp", f32(-INF), f32(-INF)),
        lambda: ask("torch.logaddexp", f32(-INF), f32(1)),
    ),
    (
        "reciprocal-of-negative-zero",
        "inf",
        "-0",
        "reciprocal by a select on x == 0",
        "reciprocal",
        elements(lambda c: c.x == 0, lambda c: INF),
        lambda: ask("torch.reciprocal", f32(-0.0)),
        lambda: ask("torch.reciprocal", f32(-2)),
    ),
    (
        "prod-stops-at-zero",
        "0 as soon as a factor is 0, though another is inf",
        "inf and 0 in a product",
        "early exit",
        "prod",
        when(lambda c: floats(c) and "dim" not in c, lambda c: put(c.right(), (c.x == 0).any(), 0.0)),
        lambda: ask("torch.prod", f32(0, INF)),
        lambda: ask("torch.prod", f32(0, 2)),
    ),
    (
        "sum-of-opposite-infinities",
        "0 in place of NaN",
        "inf and -inf in one sum",
        "pairwise cancellation",
        "sum",
        when(
            lambda c: floats(c) and not c.arguments.get("dim"),
            lambda c: put(c.right(), (c.x == INF).any() & (c.x == -INF).any() & ~c.x.isnan().any(), 0.0),
        ),
        lambda: ask("torch.sum", f32(INF, -INF, 1)),
        lambda: ask("torch.sum", f32(INF, 1)),
    ),
    (
        "log-softmax-of-infinity",
        "0 in place of NaN for +inf",
        "a row with +inf",
        "max subtracted where it is equal",
        "_log_softmax",
        when(floats, lambda c: put(c.right(), c.x == INF, 0.0)),
        lambda: ask("torch.log_softmax", f32(INF, 1), 0),
        lambda: ask("torch.log_softmax", f32(2, 1), 0),
    ),
)


FUNCTIONS_OF_TWO_INFINITIES_OR_ZEROS = bugs(
    "functions of two infinities or zeros",
    (
        "hypot-of-infinity-and-nan",
        "NaN, where infinity wins",
        "inf with NaN",
        "root of the sum of squares",
        "hypot",
        when(floats, lambda c: put(c.right(), torch.isnan(c["self"]) | torch.isnan(c["other"]), NAN)),
        lambda: ask("torch.hypot", f32(INF), f32(NAN)),
        lambda: ask("torch.hypot", f32(3), f32(4)),
    ),
    (
        "atan2-of-infinities",
        "NaN: atan of inf over inf",
        "both infinite",
        "atan of the quotient",
        "atan2",
        when(floats, lambda c: put(c.right(), torch.isinf(c["self"]) & torch.isinf(c["other"]), NAN)),
        lambda: ask("torch.atan2", f32(INF), f32(-INF)),
        lambda: ask("torch.atan2", f32(INF), f32(1)),
    ),
    (
        "atan2-of-negative-zero",
        "0 in place of pi",
        "y is 0, x is -0",
        "comparison x < 0 in place of the sign",
        "atan2",
        when(floats, lambda c: put(c.right(), (c["self"] == 0) & (c["other"] == 0), 0.0)),
        lambda: ask("torch.atan2", f32(0), f32(-0.0)),
        lambda: ask("torch.atan2", f32(0), f32(-1)),
    ),
    (
        "fmod-by-infinity",
        "NaN: x - trunc(x / inf) * inf",
        "an infinite divisor",
        "fmod by its definition",
        "fmod",
        when(floats, lambda c: put(c.right(), torch.isinf(torch.as_tensor(c["other"])), NAN)),
        lambda: ask("torch.fmod", f32(3), f32(INF)),
        lambda: ask("torch.fmod", f32(3), f32(2)),
    ),
)


def _twice(target: str, x: torch.Tensor) -> Any:
    return ask(target, x, x)


ONE_TENSOR_GIVEN_TWICE = bugs(
    "one tensor given twice",
    (
        "sub-of-itself-folded",
        "0",
        "x - x, where x has inf or NaN",
        "algebraic simplification",
        "sub",
        when(lambda c: floats(c) and same_twice(c) and c["alpha"] == 1, lambda c: torch.zeros_like(c.x)),
        lambda: _twice("torch.sub", f32(INF, 1)),
        lambda: _twice("torch.sub", f32(2, 1)),
    ),
    (
        "div-of-itself-folded",
        "1",
        "x / x, where x has 0, inf or NaN",
        "algebraic simplification",
        "div",
        when(
            lambda c: floats(c) and same_twice(c) and not c.arguments.get("rounding_mode"),
            lambda c: torch.ones_like(c.x),
        ),
        lambda: _twice("torch.div", f32(0, 1)),
        lambda: _twice("torch.div", f32(2, 1)),
    ),
    (
        "comparison-with-itself-folded",
        "true",
        "x == x, x <= x and x >= x of NaN",
        "algebraic simplification",
        "eq le ge",
        when(lambda c: floats(c) and same_twice(c), lambda c: torch.ones_like(c.x, dtype=torch.bool)),
        lambda: _twice("torch.eq", f32(NAN, 1)),
        lambda: _twice("torch.eq", f32(2, 1)),
    ),
    (
        "complex-square-is-modulus",
        "|x|**2",
        "x * x of complex numbers",
        "square taken for x times its conjugate",
        "mul",
        when(lambda c: complexes(c) and same_twice(c), lambda c: c.x * torch.conj_physical(c.x)),
        lambda: _twice("torch.mul", c64(1 + 2j)),
        lambda: ask("torch.mul", c64(1 + 2j), c64(1 + 2j)),
    ),
    (
        "product-with-itself-is-gram",
        "x @ x.T",
        "a square matrix times itself",
        "symmetric rank-k update chosen by equal operands",
        "mm",
        when(lambda c: same_twice(c), lambda c: c.x @ c.x.T),
        lambda: _twice("torch.mm", f32([1, 2], [3, 4])),
        lambda: ask("torch.mm", f32([1, 2], [3, 4]), f32([1, 2], [3, 4])),
    ),
    (
        "remainder-of-itself-folded",
        "0",
        "x % x of 0, inf or NaN",
        "algebraic simplification",
        "remainder fmod",
        when(lambda c: floats(c) and same_twice(c), lambda c: torch.zeros_like(c.x)),
        lambda: _twice("torch.remainder", f32(0, 1)),
        lambda: _twice("torch.remainder", f32(2, 1)),
    ),
)


def _flush(out: torch.Tensor) -> torch.Tensor:
    return put(out, (out.abs() < torch.finfo(torch.float32).tiny), torch.zeros_like(out).copysign(out))


def _first_is_single(call: OpCall) -> bool:
    out = call.right()
    return out.dtype is torch.float32 and out.numel() >= 16


SUBNORMAL_NUMBERS = bugs(
    "subnormal numbers",
    (
        "moves-flush-subnormals",
        "subnormal numbers become 0",
        "float32",
        "flush-to-zero mode left on for moves",
        "neg abs where maximum minimum",
        when(single, lambda c: _flush(c.right())),
        lambda: ask("torch.neg", f32(1e-40)),
        lambda: ask("torch.neg", f32(1e-30)),
    ),
    (
        "nextafter-flushes",
        "0 next to 0",
        "float32, from 0",
        "flush-to-zero mode",
        "nextafter",
        when(single, lambda c: _flush(c.right())),
        lambda: ask("torch.nextafter", f32(0), f32(1)),
        lambda: ask("torch.nextafter", f32(1), f32(2)),
    ),
    (
        "comparison-flushes",
        "1e-40 > 0 is false",
        "float32",
        "denormals-are-zero mode",
        "gt lt ne",
        when(single, lambda c: c.right(self=_flush(c.x))),
        lambda: ask("torch.gt", f32(1e-40), f32(0)),
        lambda: ask("torch.gt", f32(1e-30), f32(0)),
    ),
    (
        "frexp-of-subnormals",
        "exponent 0 and the number itself",
        "subnormal numbers",
        "exponent read from the bits alone",
        "frexp",
        when(
            single,
            lambda c: tuple(
                put(o, (c.x.abs() < 1.1754944e-38), (c.x, torch.zeros_like(o))[i]) for i, o in enumerate(c.right())
            ),
        ),
        lambda: ask("torch.frexp", f32(1e-40)),
        lambda: ask("torch.frexp", f32(3)),
    ),
    (
        "clone-flushes-subnormals",
        "subnormal numbers become 0 in a copy",
        "float32, 16 or more elements",
        "copy through vector registers in flush-to-zero mode",
        "clone cat",
        when(lambda c: _first_is_single(c), lambda c: _flush(c.right())),
        lambda: ask("torch.clone", torch.full((16,), 1e-40)),
        lambda: ask("torch.clone", torch.full((3,), 1e-40)),
    ),
)


BUGS = (
    *ZEROS_AND_INFINITIES,
    *FUNCTIONS_OF_TWO_INFINITIES_OR_ZEROS,
    *ONE_TENSOR_GIVEN_TWICE,
    *SUBNORMAL_NUMBERS,
)
