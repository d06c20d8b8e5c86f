"""Matrix products in all their forms, given one that multiplies batches of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.control import Kernel
from torchstone.conformance.controls.operands import MAX_TERMS, accumulator

MAX_PRODUCTS = 1 << 22
"""How many products a contraction holds at a time, at most; larger ones are left to eager."""

Multiply = Callable[[Tensor, Tensor], Any]
"""From ``[*batch, m, k]`` and ``[*batch, k, n]``, ``k`` at least 1, to ``[*batch, m, n]``, or ``NotImplemented``."""


def contractions(multiply: Multiply, *, complex_numbers: bool = True) -> dict[str, Kernel]:
    """The kernels of the operators of ATen that contract one dim. 16-bit numbers are multiplied in float32."""

    def product(a: Tensor, b: Tensor) -> Any:
        """The product in the accumulator's dtype."""
        if not takes(a, b, complex_numbers):
            return NotImplemented
        wide = accumulator(a.dtype)
        if not a.shape[-1]:
            return torch.matmul(a.to(wide), b.to(wide))
        return multiply(a.to(wide), b.to(wide))

    def matrix(a: Tensor, b: Tensor) -> Any:
        out = product(a, b)
        return out if out is NotImplemented else out.to(a.dtype)

    def vector(a: Tensor, b: Tensor) -> Any:
        out = matrix(a, b.unsqueeze(-1))
        return out if out is NotImplemented else out.squeeze(-1)

    def dot(a: Tensor, b: Tensor) -> Any:
        out = matrix(a.unsqueeze(0), b.unsqueeze(-1))
        return out if out is NotImplemented else out.reshape(())

    def added(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        out = product(a, b) if c.dtype == a.dtype else NotImplemented
        if out is NotImplemented:
            return out
        out = out if alpha == 1 else out * alpha
        return (out if beta == 0 else out + c.to(out.dtype) * beta).to(a.dtype)

    def added_vector(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        out = added(c.unsqueeze(-1) if c.dim() else c, a, b.unsqueeze(-1), beta=beta, alpha=alpha)
        return out if out is NotImplemented else out.squeeze(-1)

    return {
        "mm": matrix,
        "bmm": matrix,
        "mv": vector,
        "dot": dot,
        "vdot": lambda a, b: dot(a.conj_physical(), b),
        "addmm": added,
        "baddbmm": added,
        "addmv": added_vector,
    }


def takes(a: Tensor, b: Tensor, complex_numbers: bool = True) -> bool:
    """Whether two batches of matrices are of numbers that round, and small."""
    if a.dtype != b.dtype or not (a.is_floating_point() or (a.is_complex() and complex_numbers)):
        return False
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return False
    return math.prod(a.shape) * b.shape[-1] <= MAX_PRODUCTS and a.shape[-1] <= MAX_TERMS
