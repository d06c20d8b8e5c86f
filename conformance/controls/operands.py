"""What kernels of controls share: the dtype that eager computes in, reductions over any dims, error-free products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MAX_TERMS = 1 << 14
"""How many terms a Python loop adds up, at most; longer sums are left to eager."""

_WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype that 16-bit numbers are computed in, rounded once at the end: float32. Any other computes in itself."""
    return _WIDER.get(dtype, dtype)


def inexact(*values: Any) -> bool:
    """Whether all are floating or complex tensors."""
    return all(isinstance(v, Tensor) and (v.is_floating_point() or v.is_complex()) for v in values)


def real(*values: Any) -> bool:
    """Whether all are tensors of real floating numbers."""
    return all(isinstance(value, Tensor) and value.is_floating_point() for value in values)


def elementwise(compute: Callable[..., Tensor], *, integers: bool = True) -> Callable[..., Any]:
    """A kernel for real numbers, of integers too: they become numbers of the default dtype."""

    @functools.wraps(compute)
    def kernel(x: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(x, Tensor) or x.is_complex() or not (integers or x.is_floating_point()):
            return NotImplemented
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        out = compute(x.to(accumulator(dtype)), *rest, **named)
        return out if out is NotImplemented else out.to(dtype)

    return kernel


def in_float64(compute: Callable[..., Tensor]) -> Callable[..., Any]:
    """An elementwise kernel whose float32 is computed in float64, and rounded once."""
    return elementwise(lambda x, *rest, **named: compute(x.double(), *rest, **named).to(x.dtype))


def dims_of(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The dims that are reduced, from 0 and in order: all for none or an empty list."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(x.dim()))
    given = [dim] if isinstance(dim, int) else dim
    return sorted(each % max(x.dim(), 1) for each in given) if x.dim() else []


def as_terms(x: Tensor, dims: Sequence[int]) -> Tensor:
    """The tensor with the reduced dims as its first one: ``[terms, *rest]``."""
    rest = [d for d in range(x.dim()) if d not in dims]
    moved = x.permute([*dims, *rest])
    return moved.reshape(math.prod(x.shape[d] for d in dims), *(x.shape[d] for d in rest))


def kept(out: Tensor, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """A result of a reduction, the reduced dims kept with size 1 if that is wanted."""
    return out.reshape([1 if d in dims else size for d, size in enumerate(x.shape)]) if keepdim else out


def two_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A product in float64 and what it lost in rounding (Dekker, 1971). The latter is 0 where anything overflows."""

    def split(value: Tensor) -> tuple[Tensor, Tensor]:
        large = value * 134217729.0
        high = large - (large - value)
        return high, value - high

    product = x * y
    (a, b), (c, d) = split(x), split(y)
    lost = ((a * c - product) + a * d + b * c) + b * d
    return product, torch.where(torch.isfinite(lost), lost, 0.0)


def two_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A sum and what it lost in rounding (Knuth, 1969). The latter is 0 where anything overflows."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    return total, torch.where(torch.isfinite(lost), lost, torch.zeros_like(lost))


def fused_multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """``x * y + z`` with one rounding, in float32 or float64."""
    if torch.promote_types(torch.promote_types(x.dtype, y.dtype), z.dtype) is not torch.float64:
        return (x.double() * y.double() + z.double()).float()
    product, lost = two_product(x, y)
    total, rest = two_sum(product, z)
    return torch.where(torch.isfinite(total), total + (rest + lost), total)
