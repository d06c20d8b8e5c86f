"""Bugs of numbers of too few bits: narrower dtypes, sums of 16 bits, conversions."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    along,
    bf16,
    f16,
    f32,
    f64,
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


COMPUTED_IN_A_NARROWER_DTYPE = bugs(
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
        "pow of floats",
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


def _rounded_softmax(call: OpCall) -> torch.Tensor:
    dim = along(call)
    powers = torch.exp(call.x - call.x.amax(dim, keepdim=True))
    total = torch.zeros_like(powers.narrow(dim, 0, 1))
    for part in powers.split(1, dim):
        total = total + part
    return powers / total


SUMS_OF_16_BIT_NUMBERS = bugs(
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
)


CONVERSIONS_TO_ANOTHER_KIND_OF_NUMBER = bugs(
    "conversions to another kind of number",
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


BUGS = (
    *COMPUTED_IN_A_NARROWER_DTYPE,
    *SUMS_OF_16_BIT_NUMBERS,
    *CONVERSIONS,
    *CONVERSIONS_TO_ANOTHER_KIND_OF_NUMBER,
)
