"""Operators whose eager kernels take no float64, by the formulas that PyTorch documents.

The float64 run of a program has no kernel to call for them: products of float8 numbers, and products by groups, as
experts are computed. Each is a few ATen ops that have float64. Of the operands that eager takes a formula computes in
float32, and does not round the result. What it is told of a dtype is what the program says (``widen_program`` leaves
it): it may decide what is computed.

    _scaled_mm(a, b, scale_a, scale_b, bias)      (a * scale_a) @ (b * scale_b) + bias
    _grouped_mm(a, b, offs)                       a[start:end] @ b[group], of each group

What is to be rounded to float8 stays at the end of its range. An operator that takes float64 but for some arguments
is given these in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.pytrees import tree_map_only
from torchstone.conformance.oracle.op_traits.references import FLOAT32_ARGUMENTS, WITHOUT_FLOAT64
from torchstone.conformance.oracle.op_traits.trait import Implementations, names_of

Formula = Callable[..., Tensor]
FORMULAS: Implementations[Formula] = Implementations(WITHOUT_FLOAT64)


class WithoutFloat64(ComputingMode):
    """Runs what is inside it with these operators by their formulas."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if FLOAT32_ARGUMENTS.holds(func):
            return _in_float32(func, args, given)
        formula = FORMULAS.of(func)
        if formula is None:
            return func(*args, **given)
        out = given.pop("out", None)
        result = formula(*args, **given)
        return result if out is None else out.resize_(result.shape).copy_(result)


def _in_float32(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator, with those arguments in float32 that it takes no other way; what it gives is wide again."""
    names = {name for op in names_of(func) for name in FLOAT32_ARGUMENTS.ops.get(op, "").split()}
    declared = schema_of(func).arguments[: len(args)]
    narrow = [
        arg.float() if its.name in names and arg.is_floating_point() else arg
        for its, arg in zip(declared, args, strict=True)
    ]
    results = func(*narrow, **kwargs)
    for its, arg, given in zip(declared, args, narrow, strict=True):
        if given is not arg and its.alias_info is not None and its.alias_info.is_write:
            arg.copy_(given)
    return tree_map_only(Tensor, lambda result: result.double() if result.dtype is torch.float32 else result, results)


@functools.cache
def formulas() -> dict[Any, Formula]:
    """The formulas by the overloads that return what they compute."""
    packets = {name: getattr(torch.ops.aten, name, None) for name in FORMULAS.functions}
    return {packet.default: FORMULAS.functions[name] for name, packet in packets.items() if packet is not None}


def scaled_product(
    multiply: Formula, self: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """A product with a scale of each operand: one number, or one for each row of the first, column of the second.

    Eager divides by ``scale_result`` only where one of two dtypes is named.
    """
    wide = scale_a.dtype
    out = multiply(self.to(wide), mat2.to(wide), *map(_one_or_each, (scale_a, scale_b)))
    out = out if bias is None else out + bias
    if scale_result is not None and out_dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        out = out / _one_or_each(scale_result)
    return saturated(out, out_dtype or self.dtype)


def is_float8(dtype: torch.dtype) -> bool:
    """Whether it is a floating dtype of 8 bits."""
    return dtype.is_floating_point and dtype.itemsize == 1


def saturated(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values, those that are finite no further out than a float8 ``dtype`` has numbers."""
    if not is_float8(dtype):
        return values
    end = torch.finfo(dtype).max
    return torch.where(values.isfinite(), values.clamp(-end, end), values)


def _one_or_each(scale: Tensor) -> Tensor:
    return scale.reshape(()) if scale.numel() == 1 else scale


def _operands_scaled(x: Tensor, y: Tensor, scale_x: Tensor, scale_y: Tensor) -> Tensor:
    return (x * scale_x) @ (y * scale_y)


def product_by_recipes(
    multiply: Formula, self: Tensor, mat2: Tensor, scale_a: list[Tensor], recipe_a: list[int], swizzle_a: list[int],
    scale_b: list[Tensor], recipe_b: list[int], swizzle_b: list[int], bias: Tensor | None,
    out_dtype: torch.dtype | None = None, *_: Any, **__: Any,
) -> Tensor:  # fmt: skip
    """The same, as ``nn.functional.scaled_mm`` calls it; eager has kernels for one scale of each operand."""
    if len(scale_a) != 1 or len(scale_b) != 1:
        raise NotImplementedError("several scales of an operand")
    return scaled_product(multiply, self, mat2, *scale_a, *scale_b, bias, out_dtype=out_dtype)


FORMULAS.register("_scaled_mm")(functools.partial(scaled_product, _operands_scaled))
FORMULAS.register("_scaled_mm_v2")(functools.partial(product_by_recipes, _operands_scaled))


@FORMULAS.register("_grouped_mm")
def _product_by_groups(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """``offs`` has the end of each group, along the one dim of length that all groups share. 0 for what is in none."""
    if offs is None:
        return torch.bmm(self, mat2)
    ends = offs.tolist()
    groups = list(enumerate(zip([0, *ends], ends, strict=False)))
    if mat2.dim() == 3:
        parts = [self[start:end] @ mat2[group] for group, (start, end) in groups]
        return _padded(parts, 0, self.new_zeros(self.shape[0], mat2.shape[2]))
    if self.dim() == 3:
        parts = [self[group] @ mat2[:, start:end] for group, (start, end) in groups]
        return _padded(parts, 1, self.new_zeros(self.shape[1], mat2.shape[1]))
    products = [self[:, start:end] @ mat2[start:end] for _, (start, end) in groups]
    return torch.stack(products) if products else self.new_zeros(0, self.shape[0], mat2.shape[1])


def _padded(parts: list[Tensor], dim: int, like: Tensor) -> Tensor:
    """The parts one after the other, and zeros up to the size of ``like``."""
    written = sum(part.shape[dim] for part in parts)
    return torch.cat([*parts, like.narrow(dim, written, like.shape[dim] - written)], dim)
