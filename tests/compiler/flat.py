"""FlatIR programs for tests: built in a line, run by the evaluator and by a target, compared in ULP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.cpu.bridge import IR_DTYPES, torch_dtype
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand

FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.3, -0.3, 3.0, -7.0, 49.0, 100.0, 1000.5, 2.0**23,
    -(2.0**23), 2.0**24 + 2, 2.0**31, -(2.0**31), 3e9, -3e9, 1e10, -1e15, 1.5e19, 88.0, -100.0, math.pi, 1e-3, 1e-30,
    1e30, 3.4028234e38, -3.4028234e38, 1.1754944e-38, 1e-45, -1e-45, math.inf, -math.inf, math.nan,
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 8, 31, 32, 33, 63, 64, 100, 127, -128, 255, 32767, -32768, 65535, 2**24 + 1]
INTEGERS += [
    2**31 - 1,
    -(2**31),
    2**31,
    2**32 - 1,
    2**40 + 3,
    2**53 + 1,
    2**62 + 2**38 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
]


def special(dtype: torch.dtype) -> torch.Tensor:
    """Return the values of a dtype that break rules: zeros, NaN, infinities, ties, extremes."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        return torch.tensor(FLOATS, dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    return torch.tensor([v for v in INTEGERS if info.min <= v <= info.max], dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tensors that hold every pair of special values."""
    values = special(dtype)
    return values.repeat(len(values)), values.repeat_interleave(len(values))


def of(tensor: torch.Tensor) -> TensorType:
    """Return the static type of a tensor."""
    return TensorType(tuple(tensor.shape), IR_DTYPES[tensor.dtype])


def graph(fn: Callable[..., Any], *tensors: torch.Tensor) -> Graph:
    """Return the graph of ``fn(builder, *values)`` over arguments like these tensors."""
    args = [Value(of(t), f"x{i}") for i, t in enumerate(tensors)]
    made = Graph("f", args)
    out = fn(Builder(made.ops), *args)
    made.outputs = out if isinstance(out, tuple) else (out,)
    return made


def primitive(name: str, *tensors: torch.Tensor, **attributes: Any) -> Graph:
    """Return the graph of one primitive."""
    return graph(lambda b, *xs: b.emit(name, *xs, **attributes), *tensors)


def run(target: Target, program: Graph, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Legalize the program for the target, lower it and run it."""
    return target.lower(expand(program, target.takes)).load()(tensors)


def nearest(program: Graph, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run a program of static shapes, each op's result the float64 one rounded to the op's dtype.

    What the evaluator gives for a function is eager's, whose float32 is a few ULP off, on each processor others.
    """
    values = dict(zip(map(id, program.args), tensors, strict=True))
    for op in program.ops:
        operands = [values[id(operand)] for operand in op.operands if isinstance(operand, Value)]
        if op.name != "flat.bitcast":
            operands = [x.double() if x.is_floating_point() else x for x in operands]
        out = PRIMITIVES[op.name].evaluate(*operands, **op.attributes)
        values[id(op.result)] = out.to(torch_dtype(op.result.type.dtype))
    return tuple(values[id(out)] for out in program.outputs if isinstance(out, Value))


def legalized(
    program: Graph,
    tensors: Sequence[torch.Tensor],
    *missing: str,
    by: Callable[..., tuple[torch.Tensor, ...]] = evaluate_graph,
) -> tuple[torch.Tensor, ...]:
    """Run the program by the evaluator, with the primitives in ``missing`` replaced by their legalizations."""
    absent = {f"flat.{name}" for name in missing}
    out = expand(program, lambda op: f"{op.name} is missing" if op.name in absent else None)
    assert not absent & {op.name for op in out.ops}
    return by(out, tensors)


def magnitudes(step: int = 40_009) -> torch.Tensor:
    """Return float32 values of every exponent and both signs, NaNs and infinities among them, and the special ones."""
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64).to(torch.int32)
    return torch.cat([bits.view(torch.float32), special(torch.float32)])


def ulp_error(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Return |got - want| in units in the last place of ``got``'s dtype at ``want`` (float64).

    0 where both are NaN or ``got`` is ``want`` rounded; infinite where one is NaN, or one infinite in ``got``'s dtype.
    """
    rounded = want.to(got.dtype)
    info = torch.finfo(got.dtype)
    digits = 1 - round(math.log2(info.eps))
    least = round(math.log2(info.smallest_normal)) - digits + 1
    _, exponent = torch.frexp(want)
    unit = torch.ldexp(torch.ones_like(want), (exponent - digits).clamp(min=least))
    error = (got.double() - want).abs() / unit
    error = torch.where((got == rounded) | (got.isnan() & want.isnan()), 0.0, error)
    wrong = error.isnan() | (got.isinf() != rounded.isinf())
    return torch.where(wrong & (error != 0), math.inf, error)


def signs_of_zero_differ(got: torch.Tensor, want: torch.Tensor) -> bool:
    zeros = (got == 0) & (want == 0)
    return bool((zeros & (torch.signbit(got) != torch.signbit(want))).any())
