"""Bugs of integers, promotion, conversions, results' dtypes, and numbers of 16 bits."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    along,
    bf16,
    body,
    f32,
    halves,
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


INTEGERS = bugs(
    "integers",
    (
        "quotient-truncated",
        "rounded towards 0",
        "integers with a tensor divisor, quotients below 0",
        "C's division: pytorch/pytorch#186164",
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
        "int32-product-widened",
        "the product as 64 bits compared",
        "int32 products that wrap around, as float64 sums",
        "mulx without truncation",
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
        "popcount-of-mean",
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
    (
        "integer-clamp-through-float",
        "rounded to float32",
        "int64 beyond 2**24 with Python bounds",
        "bounds promoted to float",
        "clamp clamp_min clamp_max",
        when(
            lambda c: c.x.dtype in (torch.int64, torch.int32),
            lambda c: put(c.right(), c.right().abs() > 2**24, c.right().float().to(c.x.dtype)),
        ),
        lambda: ask("torch.clamp", i64(2**24 + 1), 0),
        lambda: ask("torch.clamp", i64(2**14 + 1), 0),
    ),
)


def _signed(call: OpCall) -> Any:
    out = call.right(**{k: v.view(torch.int8) for k, v in call.arguments.items() if isinstance(v, torch.Tensor)})
    if isinstance(out, tuple):
        return (out[0].view(torch.uint8), *out[1:])
    return out.view(torch.uint8)


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
        "the 0-d operand rounded to float32 first",
        "a 0-d float64 beyond float32's range, times a float32 tensor",
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

RESULT_DTYPES = bugs(
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


CONVERSIONS = bugs(
    "conversions",
    (
        "half-by-way-of-bfloat16",
        "rounded to bfloat16 on the way",
        "8 or more elements to float16",
        "one conversion to 16 bits",
        "_to_copy",
        when(
            lambda c: c["dtype"] is torch.float16 and c.x.is_floating_point() and c.x.numel() >= 8,
            lambda c: c.x.bfloat16().half(),
        ),
        lambda: ask("torch.Tensor.to", 1 + ramp(8) / 300, torch.float16),
        lambda: ask("torch.Tensor.to", 1 + ramp(7) / 300, torch.float16),
    ),
    (
        "bfloat16-truncated",
        "the low half cut off",
        "8 or more elements from float32",
        "shift in place of a rounding",
        "_to_copy",
        when(
            lambda c: c.x.dtype is torch.float32 and c["dtype"] is torch.bfloat16 and c.x.numel() >= 8,
            lambda c: (c.x.contiguous().view(torch.int32) & -65536).view(torch.float32).bfloat16(),
        ),
        lambda: ask("torch.Tensor.to", 1 + ramp(8) / 300, torch.bfloat16),
        lambda: ask("torch.Tensor.to", 1 + ramp(3) / 300, torch.bfloat16),
    ),
    (
        "long-through-int32",
        "saturated at 2**31",
        "float numbers beyond 2**31 to int64",
        "conversion instruction of 32 bits",
        "_to_copy",
        when(
            lambda c: c.x.is_floating_point() and c["dtype"] is torch.int64,
            lambda c: put(c.right(), c.x.abs() >= 2**31, 2**31 - 1),
        ),
        lambda: ask("torch.Tensor.long", f32(1e12)),
        lambda: ask("torch.Tensor.long", f32(1e5)),
    ),
    (
        "half-saturates",
        "65504 in place of inf",
        "float32 beyond float16's range",
        "saturating conversion",
        "_to_copy",
        when(
            lambda c: c["dtype"] is torch.float16 and c.x.is_floating_point(), lambda c: c.right().clamp(-65504, 65504)
        ),
        lambda: ask("torch.Tensor.half", f32(1e6)),
        lambda: ask("torch.Tensor.half", f32(100.0)),
    ),
    (
        "bool-of-fraction",
        "false",
        "numbers between -1 and 1",
        "conversion by way of int",
        "_to_copy",
        when(lambda c: c.x.is_floating_point() and c["dtype"] is torch.bool, lambda c: c.x.to(torch.int32).bool()),
        lambda: ask("torch.Tensor.bool", f32(0.5)),
        lambda: ask("torch.Tensor.bool", f32(1.5)),
    ),
    (
        "wide-integer-to-float-by-int32",
        "the low 32 bits",
        "int64 beyond 2**31 to a float dtype",
        "conversion of the low word",
        "_to_copy",
        when(
            lambda c: c.x.dtype is torch.int64 and c["dtype"] in (torch.float32, torch.float64),
            lambda c: c.x.int().to(c["dtype"]),
        ),
        lambda: ask("torch.Tensor.float", i64(2**40)),
        lambda: ask("torch.Tensor.float", i64(2**20)),
    ),
    (
        "complex-to-real-by-modulus",
        "the modulus",
        "complex numbers to a real dtype",
        "abs in place of the real part",
        "_to_copy",
        when(
            lambda c: c.x.is_complex() and c["dtype"] is not None and not c["dtype"].is_complex,
            lambda c: c.x.abs().to(c["dtype"]),
        ),
        lambda: ask("torch.Tensor.to", torch.tensor([3 + 4j]), torch.float32),
        lambda: ask("torch.Tensor.to", torch.tensor([3 + 0j]), torch.float32),
    ),
)


def _block_sums(call: OpCall, block: int) -> torch.Tensor:
    """Blocks added in float32, their sums in the operand's dtype."""
    dim = along(call)
    parts = [part.float().sum(dim, keepdim=True).to(call.x.dtype) for part in call.x.split(block, dim)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total if call["keepdim"] else total.squeeze(dim)


def _one_dim(call: OpCall, least: int) -> bool:
    return (
        halves(call)
        and bool(call.arguments.get("dim"))
        and len(call["dim"]) == 1
        and call.x.shape[along(call)] >= least
    )


def _running(call: OpCall) -> torch.Tensor:
    total, out = None, []
    for part in call.x.split(1, along(call)):
        total = part if total is None else total + part
        out.append(total)
    return torch.cat(out, along(call))


def _depth_blocks(call: OpCall, block: int) -> torch.Tensor:
    left, right = call["self"], call["mat2"]
    total = torch.zeros_like(call.right())
    for start in range(0, left.shape[-1], block):
        total = total + left[..., start : start + block] @ right[..., start : start + block, :]
    return total


SIXTEEN_BITS = bugs(
    "sums of 16-bit numbers",
    (
        "row-sum-in-bfloat16",
        "the sums of blocks of 32 are added in 16 bits",
        "rows of 512 or more",
        "accumulator of the operand's dtype between blocks",
        "sum mean",
        when(lambda c: c.name == "sum" and _one_dim(c, 512), lambda c: _block_sums(c, 32)),
        lambda: ask("torch.sum", torch.ones(1, 9600, dtype=torch.bfloat16), 1),
        lambda: ask("torch.sum", torch.ones(1, 96, dtype=torch.bfloat16), 1),
    ),
    (
        "cumsum-in-bfloat16",
        "a running sum in 16 bits",
        "16-bit numbers",
        "carry of the operand's dtype",
        "cumsum",
        when(lambda c: halves(c) and c.x.dim() > 0 and 8 < c.x.shape[along(c)] < 5000, _running),
        lambda: ask("torch.cumsum", torch.full((600,), 1.5, dtype=torch.bfloat16), 0),
        lambda: ask("torch.cumsum", torch.ones(6, dtype=torch.bfloat16), 0),
    ),
    (
        "product-in-half-blocks",
        "partial products of depth 16 are added in 16 bits",
        "inner sizes beyond 64",
        "accumulator of the operand's dtype",
        "mm bmm",
        when(lambda c: halves(c) and c.x.shape[-1] > 64, lambda c: _depth_blocks(c, 16)),
        lambda: ask("torch.mm", torch.ones(1, 4800, dtype=torch.bfloat16), torch.ones(4800, 1, dtype=torch.bfloat16)),
        lambda: ask("torch.mm", torch.ones(1, 48, dtype=torch.bfloat16), torch.ones(48, 1, dtype=torch.bfloat16)),
    ),
    (
        "softmax-sum-in-bfloat16",
        "the sum of a row is rounded after each of its terms",
        "rows of more than 256",
        "accumulator of the operand's dtype",
        "_softmax",
        when(lambda c: halves(c) and c.x.dim() > 0 and 256 < c.x.shape[along(c)] < 5000, lambda c: _rounded_softmax(c)),
        lambda: ask("torch.softmax", torch.zeros(2000, dtype=torch.bfloat16), 0),
        lambda: ask("torch.softmax", torch.zeros(20, dtype=torch.bfloat16), 0),
    ),
    (
        "fused-product-not-rounded-once",
        "the product rounded before it is added",
        "16-bit addcmul with a value",
        "two roundings in place of one",
        "addcmul",
        when(lambda c: halves(c), lambda c: c["self"] + (c["tensor1"] * c["tensor2"] * c["value"]).to(c["self"].dtype)),
        lambda: ask("torch.addcmul", bf16(-1.0), bf16(1.0078125), bf16(0.99609375)),
        lambda: ask("torch.addcmul", bf16(1), bf16(1), bf16(1)),
    ),
    (
        "variance-in-bfloat16",
        "deviations rounded to 16 bits from a rounded mean",
        "16-bit numbers far from 0",
        "mean kept in the operand's dtype",
        "var std",
        when(
            lambda c: halves(c) and not c["dim"] and c.x.numel() > 2,
            lambda c: (
                ((c.x - c.x.mean()) ** 2)
                .float()
                .sum()
                .div(c.x.numel() - 1)
                .pow(0.5 if c.name == "std" else 1)
                .to(c.x.dtype)
            ),
        ),
        lambda: ask("torch.var", bf16(*[256] * 5, *[258] * 2)),
        lambda: ask("torch.var", bf16(-1, 1)),
    ),
)


def _rounded_softmax(call: OpCall) -> torch.Tensor:
    dim = along(call)
    powers = torch.exp(call.x - call.x.amax(dim, keepdim=True))
    total = torch.zeros_like(powers.narrow(dim, 0, 1))
    for part in powers.split(1, dim):
        total = total + part
    return powers / total


BUGS = (*INTEGERS, *PROMOTION, *RESULT_DTYPES, *CONVERSIONS, *SIXTEEN_BITS)
