"""Bugs of integers, promotion, and the dtypes of results."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    along,
    body,
    f32,
    i8,
    i32,
    i64,
    integers,
    put,
    ramp,
    strided,
    u8,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _bits(call: OpCall) -> int:
    return call.x.element_size() * 8


def _least(call: OpCall) -> torch.Tensor:
    return call.x == torch.iinfo(call.x.dtype).min


def _other(call: OpCall) -> torch.Tensor:
    return torch.as_tensor(call["other"])


def _wide(call: OpCall) -> torch.Tensor:
    """The sum or difference in int64, which 8 bits may not hold."""
    other = _other(call).long() * call["alpha"]
    return call["self"].long() + (other if call.name == "add" else -other)


def _signed(call: OpCall) -> Any:
    out = call.right(**{k: v.view(torch.int8) for k, v in call.arguments.items() if isinstance(v, torch.Tensor)})
    if isinstance(out, tuple):
        return (out[0].view(torch.uint8), *out[1:])
    return out.view(torch.uint8)


INTEGERS = bugs(
    "integers",
    (
        "quotient-truncated",
        "rounded towards 0",
        "integers with a tensor divisor, quotients below 0",
        "division of integers by a tensor: pytorch/pytorch#186164",
        "floor_divide",
        when(
            lambda c: integers(c) and isinstance(c["other"], torch.Tensor),
            lambda c: torch.div(c["self"], c["other"], rounding_mode="trunc"),
        ),
        lambda: ask("torch.floor_divide", i64(-7), i64(2)),
        lambda: ask("torch.floor_divide", i64(-7), 2),
    ),
    (
        "remainder-of-c",
        "the sign of the dividend",
        "integers with a negative divisor",
        "C's %: apache/tvm#17882",
        "remainder",
        when(lambda c: integers(c) and bool((_other(c) < 0).any()), lambda c: torch.fmod(c["self"], c["other"])),
        lambda: ask("torch.remainder", i64(7), i64(-3)),
        lambda: ask("torch.remainder", i64(-7), i64(3)),
    ),
    (
        "abs-saturates",
        "the greatest number for the least",
        "the least integer",
        "saturating instruction",
        "abs neg",
        when(
            lambda c: integers(c) and c.x.dtype is not torch.uint8,
            lambda c: put(c.right(), _least(c), torch.iinfo(c.x.dtype).max),
        ),
        lambda: ask("torch.abs", i8(-128)),
        lambda: ask("torch.abs", i8(-127)),
    ),
    (
        "bytes-saturate",
        "clamped to the range",
        "8-bit sums in whole vectors",
        "saturating addition of bytes",
        "add sub",
        when(
            lambda c: (
                integers(c)
                and all(t.element_size() == 1 for t in c.tensors)
                and c.right().dtype in (torch.int8, torch.uint8)
            ),
            lambda c: body(c.right(), _wide(c).clamp(torch.iinfo(c.x.dtype).min, torch.iinfo(c.x.dtype).max), 16),
        ),
        lambda: ask("torch.add", u8(*[200] * 16), u8(*[100] * 16)),
        lambda: ask("torch.add", u8(*[200] * 15), u8(*[100] * 15)),
    ),
    (
        "shift-count-masked",
        "the count modulo the width",
        "shifts by the width or more",
        "the processor's shift: pytorch/pytorch#143566",
        "bitwise_left_shift bitwise_right_shift",
        when(
            lambda c: integers(c) and isinstance(c["self"], torch.Tensor),
            lambda c: c.right(other=c["other"] % _bits(c)),
        ),
        lambda: ask("torch.bitwise_left_shift", i64(1000), i64(64)),
        lambda: ask("torch.bitwise_left_shift", i64(1000), i64(3)),
    ),
    (
        "right-shift-is-logical",
        "zeros come in from the left",
        "negative 32-bit integers",
        "shift of unsigned numbers: pytorch/pytorch#127310",
        "bitwise_right_shift __rshift__",
        when(
            lambda c: c.x.dtype is torch.int32 and bool((_other(c) > 0).all()),
            lambda c: put(c.right(), c["self"] < 0, ((c["self"].long() & 0xFFFFFFFF) >> c["other"]).int()),
        ),
        lambda: ask("torch.bitwise_right_shift", i32(-8), i32(1)),
        lambda: ask("torch.bitwise_right_shift", i32(8), i32(1)),
    ),
    (
        "not-of-bool-by-complement",
        "true: ~1 is not 0",
        "bool operands that are not contiguous",
        "bitwise complement of a byte",
        "bitwise_not logical_not",
        when(lambda c: c.x.dtype is torch.bool and strided(c), lambda c: torch.ones_like(c.right())),
        lambda: ask("torch.bitwise_not", torch.ones(2, 2, dtype=torch.bool)[:, 0]),
        lambda: ask("torch.bitwise_not", torch.ones(2, dtype=torch.bool)),
    ),
    (
        "gcd-of-negatives",
        "the sign of the first",
        "negative integers",
        "remainders that keep the sign",
        "gcd",
        lambda c: c.right() * torch.where(c["self"] < 0, -1, 1).to(c.right().dtype),
        lambda: ask("torch.gcd", i64(-4), i64(6)),
        lambda: ask("torch.gcd", i64(4), i64(6)),
    ),
    (
        "int32-product-saturates",
        "the greatest number",
        "products that wrap around, with the dtype given",
        "product in 64 bits, then clamped",
        "prod",
        when(
            lambda c: (
                c.x.dtype in (torch.int32, torch.int16, torch.int8, torch.uint8)
                and c.arguments.get("dtype") is not None
                and c.arguments["dtype"] is c.x.dtype
            ),
            lambda c: torch.prod(c.x.long()).clamp(max=torch.iinfo(c.x.dtype).max).to(c.x.dtype),
        ),
        lambda: ask("torch.prod", i32(2**20, 2**20), dtype=torch.int32),
        lambda: ask("torch.prod", i32(2, 3), dtype=torch.int32),
    ),
    (
        "unsigned-bytes-as-signed",
        "bytes from 128 on are less than the others",
        "uint8 with 16 or more elements",
        "signed vector comparison",
        "sort maximum minimum max min amax amin",
        when(lambda c: c.x.dtype is torch.uint8 and c.x.numel() >= 16, lambda c: _signed(c)),
        lambda: ask("torch.maximum", u8(*[200] * 16), u8(*[100] * 16)),
        lambda: ask("torch.maximum", u8(200), u8(100)),
    ),
    (
        "mean-of-integers-truncated",
        "the mean of integers truncated first",
        "a mean of integers in float32",
        "integer division before the conversion",
        "mean",
        when(
            lambda c: (
                c.arguments.get("dtype") is not None
                and not c.x.is_floating_point()
                and not c.x.is_complex()
                and not c.arguments.get("dim")
            ),
            lambda c: torch.trunc(c.right()),
        ),
        lambda: ask("torch.mean", i64(1, 2), dtype=torch.float32),
        lambda: ask("torch.mean", i64(1, 3), dtype=torch.float32),
    ),
)


PROMOTION = bugs(
    "promotion",
    (
        "zero-dim-promotes",
        "float64",
        "a 0-d float64 with a float32 tensor",
        "0-d tensors taken for tensors: pytorch/pytorch#74400",
        "add mul sub",
        when(
            lambda c: len(c.tensors) == 2 and {t.dim() > 0 for t in c.tensors} == {True, False},
            lambda c: c.right().to(torch.promote_types(c["self"].dtype, c["other"].dtype)),
        ),
        lambda: ask("torch.add", f32(1, 2), torch.tensor(1.0, dtype=torch.float64)),
        lambda: ask("torch.add", f32(1, 2), f32(1, 2)),
    ),
    (
        "zero-dim-loses-digits",
        "the 0-d operand rounded to bfloat16 first",
        "integers times a 0-d float",
        "operands converted before a product",
        "mul div",
        when(
            lambda c: (
                len(c.tensors) == 2
                and c["other"].dim() == 0
                and c["self"].dim() > 0
                and c["self"].dtype is torch.int64
                and c["other"].is_floating_point()
            ),
            lambda c: c.right(other=c["other"].to(torch.bfloat16).to(c["other"].dtype)),
        ),
        lambda: ask("torch.mul", i64(3, 5), torch.tensor(0.1)),
        lambda: ask("torch.mul", i64(3, 5), 0.1),
    ),
    (
        "cat-takes-first-dtype",
        "the dtype of the first",
        "tensors of several dtypes",
        "promotion left out",
        "cat",
        when(
            lambda c: len({t.dtype for t in c["tensors"]}) > 1,
            lambda c: c.right(tensors=[t.to(c["tensors"][0].dtype) for t in c["tensors"]]),
        ),
        lambda: ask("torch.cat", [i64(1), f32(2.5)]),
        lambda: ask("torch.cat", [f32(1), f32(2.5)]),
    ),
    (
        "where-takes-first-dtype",
        "the dtype of the first branch",
        "branches of two dtypes",
        "promotion left out",
        "where",
        when(
            lambda c: "other" in c and c["self"].dtype is not c["other"].dtype,
            lambda c: c.right(other=c["other"].to(c["self"].dtype)),
        ),
        lambda: ask("torch.where", ramp(2) > 0, i64(1, 2), f32(1.5, 2.5)),
        lambda: ask("torch.where", ramp(2) > 0, f32(1, 2), f32(1.5, 2.5)),
    ),
    (
        "integer-division-in-half-range",
        "the quotient rounded to bfloat16",
        "true division of integers of 8 and 16 bits",
        "the smallest float that is wide enough for a byte",
        "div",
        when(
            lambda c: (
                integers(c)
                and _bits(c) <= 16
                and not c.arguments.get("rounding_mode")
                and isinstance(c["other"], torch.Tensor)
            ),
            lambda c: c.right().bfloat16().float(),
        ),
        lambda: ask("torch.div", i8(1), i8(3)),
        lambda: ask("torch.div", i8(4), i8(2)),
    ),
    (
        "pow-scalar-base-dtype",
        "computed in the exponent's dtype",
        "a Python float base with integer exponents",
        "base converted to the tensor's dtype",
        "pow",
        when(
            lambda c: isinstance(c["self"], float) and integers(c),
            lambda c: c.right(self=int(c["self"])).to(c.right().dtype),
        ),
        lambda: ask("torch.pow", 2.5, i64(2)),
        lambda: ask("torch.pow", 2.0, i64(2)),
    ),
)


DTYPES_OF_RESULTS = bugs(
    "dtypes of results",
    (
        "any-of-bytes-is-bool",
        "bool in place of uint8",
        "uint8 operands",
        "lowering that casts: pytorch/pytorch#198081",
        "any",
        lambda c: c.right().bool(),
        lambda: ask("torch.any", u8(0, 3)),
        lambda: ask("torch.any", i64(0, 3)),
    ),
    (
        "cumsum-keeps-int32",
        "int32 that wraps around",
        "integers narrower than 64 bits",
        "accumulator of the operand's dtype",
        "cumsum cumprod",
        when(
            lambda c: c.x.dtype in (torch.int32, torch.int16, torch.int8) and c["dtype"] is None,
            lambda c: c.right(dtype=c.x.dtype),
        ),
        lambda: ask("torch.cumsum", i32(1, 2), 0),
        lambda: ask("torch.cumsum", i64(1, 2), 0),
    ),
    (
        "argmax-is-int32",
        "int32",
        "argmax and argmin along a dim",
        "the device's own index type",
        "argmax argmin",
        when(lambda c: c["dim"] is not None, lambda c: c.right().int()),
        lambda: ask("torch.argmax", ramp(3), 0),
        lambda: ask("torch.argmax", ramp(3)),
    ),
    (
        "indices-are-int32",
        "int32 indices",
        "sort along a dim that is not the last",
        "the device's own index type",
        "sort topk",
        when(lambda c: c.x.dim() > 1 and along(c) != c.x.dim() - 1, lambda c: (c.right()[0], c.right()[1].int())),
        lambda: ask("torch.sort", ramp(2, 2), 0),
        lambda: ask("torch.sort", ramp(2, 2), 1),
    ),
    (
        "searchsorted-ignores-out-int32",
        "int64",
        "out_int32",
        "attribute ignored",
        "searchsorted bucketize",
        lambda c: c.right(out_int32=False),
        lambda: ask("torch.searchsorted", ramp(3), ramp(2), out_int32=True),
        lambda: ask("torch.searchsorted", ramp(3), ramp(2)),
    ),
    (
        "dot-is-one-dim",
        "a result of one element and one dim",
        "a product of two vectors",
        "no 0-d results",
        "dot",
        lambda c: c.right().reshape(1),
        lambda: ask("torch.dot", ramp(3), ramp(3)),
        lambda: ask("torch.mv", ramp(2, 3), ramp(3)),
    ),
    (
        "full-of-integer-is-float",
        "float32 in place of int64",
        "a Python integer as the fill value",
        "default dtype",
        "full",
        when(lambda c: type(c["fill_value"]) is int and c["dtype"] is None, lambda c: c.right(dtype=torch.float32)),
        lambda: ask("torch.full", (2,), 3),
        lambda: ask("torch.full", (2,), 3.0),
    ),
)


BUGS = (
    *INTEGERS,
    *PROMOTION,
    *DTYPES_OF_RESULTS,
)
