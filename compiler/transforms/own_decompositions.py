"""Decompositions of ATen ops that PyTorch has none of, or one that does not fit: the steps that eager takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler.diagnostics import Unsupported


def _conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """[time, batch, channels], a weight [kernel, channels, out]: each of its matrices multiplies the times it meets.

    Not a convolution of padded times: infinity times the padding is no number.
    """
    kernel, length = weight.shape[0], x.shape[0] + 2 * pad - weight.shape[0] + 1
    out = bias.expand(length, x.shape[1], bias.shape[0])
    for at in range(kernel):
        first, after = max(0, pad - at), max(0, at + pad - kernel + 1)  # of the results, before and behind
        end = length - after
        if first < end:
            rows, met = out[first:end], x[first + at - pad : end + at - pad]
            added = torch.addmm(rows.reshape(-1, rows.shape[2]), met.reshape(-1, met.shape[2]), weight[at])
            out = torch.cat([out[:first], added.reshape(rows.shape), out[end:]])
    return out


def _isin_of_number(element: float, tests: Tensor, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """PyTorch's makes a float32 of the number, and searches for it among tests that a NaN leaves without an order."""
    found = (tests == element).any()
    return ~found if invert else found


def _native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """PyTorch's casts the mask to the gradient's dtype first, which loses numbers of one that is not boolean."""
    return grad * mask * scale


def _affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """theta applied to each place of a grid from -1 to 1: to its coordinates, the last dim first, and 1.

    PyTorch's makes a tensor of its own for a dim of size 1, which has its one place in the middle.
    """
    dims = size[2:]
    numbers: list[Tensor] = []
    for dim in reversed(range(len(dims))):
        count = dims[dim]
        most = 1.0 if align_corners or not count else (count - 1) / count
        ends = (-most, most) if count > 1 else (0.0, 0.0)
        line = torch.linspace(*ends, steps=count, dtype=theta.dtype, device=theta.device)
        numbers.append(line.reshape([-1 if at == dim else 1 for at in range(len(dims))]).expand(dims))
    numbers.append(torch.ones_like(numbers[0]))
    places = torch.stack(numbers, -1).reshape(1, -1, len(numbers)).expand(theta.shape[0], -1, -1)
    return torch.bmm(places, theta.transpose(1, 2)).reshape(theta.shape[0], *dims, len(dims))


def _window(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A window whose numbers are ``of(0, 1, …, steps; steps)``; one for a spectrum lacks the last."""

    def decomposed(window_length: int, *rest: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        periodic, *parameters = rest or (True,)
        dtype = dtype or torch.get_default_dtype()
        if window_length < 2:
            return torch.ones(window_length, dtype=dtype)
        steps = window_length if periodic else window_length - 1
        return of(torch.arange(steps + 1, dtype=dtype), steps, *parameters)[:window_length]

    return decomposed


def _bartlett(n: Tensor, steps: int) -> Tensor:
    up, half = n * (2 / steps), steps // 2 + 1
    return torch.cat([up[:half], 2 - up[half:]])


def _blackman(n: Tensor, steps: int) -> Tensor:
    angle = n * (math.pi / steps)
    offset = torch.full((), 0.42, dtype=n.dtype)  # rounded, as eager has it
    return (angle * 4).cos() * 0.08 - (angle * 2).cos() * 0.5 + offset


def _hamming(n: Tensor, steps: int, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return (n * (2 * math.pi / steps)).cos() * -beta + alpha


def _kaiser(n: Tensor, steps: int, beta: float = 12.0) -> Tensor:
    dtype = n.dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    n = n.to(wide)
    bell = torch.special.i0((n * (steps - n)).sqrt() * (2 * beta / steps))  # of beta * sqrt(1 - (2 n / steps - 1)^2)
    return (bell / torch.special.i0(torch.full((), beta, dtype=wide))).to(dtype)


_BY_ONE_SCALE = {0, 1}
"""``ScalingType``: TensorWise and RowWise."""


def _scaled_mm_by_recipes(
    self: Tensor, mat2: Tensor, scale_a: list[Tensor], recipe_a: list[int], swizzle_a: list[int],
    scale_b: list[Tensor], recipe_b: list[int], swizzle_b: list[int], bias: Tensor | None,
    out_dtype: torch.dtype | None, contraction_dim: Sequence[int] = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """With one scale of each operand, of all of it or of each row, it is ``_scaled_mm``. A CPU has no other."""
    plain = len(scale_a) == len(scale_b) == 1 and {*recipe_a, *recipe_b} <= _BY_ONE_SCALE
    if not plain or any((*swizzle_a, *swizzle_b)) or tuple(contraction_dim) not in ((), (1, 0)):
        raise Unsupported("nn.functional.scaled_mm: scales of blocks, or other dims to contract", stage="contract")
    if self.shape[1] != mat2.shape[0]:  # eager takes that, where the result has no elements
        raise Unsupported("nn.functional.scaled_mm: summed sizes that differ", stage="contract")
    multiply = torch.ops.aten._scaled_mm
    return multiply(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype, use_fast_accum)


def own_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """By overload."""
    aten = torch.ops.aten
    windows = {
        aten.bartlett_window: _bartlett, aten.blackman_window: _blackman, aten.hamming_window: _hamming,
        aten.kaiser_window: _kaiser,
    }  # fmt: skip
    by_recipes = getattr(aten, "_scaled_mm_v2", None)  # not in every release of PyTorch
    return {
        **({by_recipes.default: _scaled_mm_by_recipes} if by_recipes is not None else {}),
        aten.conv_tbc.default: _conv_tbc,
        aten.isin.Scalar_Tensor: _isin_of_number,
        aten.affine_grid_generator.default: _affine_grid_generator,
        aten.native_dropout_backward.default: _native_dropout_backward,
        **{
            getattr(packet, name): _window(of)
            for packet, of in windows.items()
            for name in packet.overloads()
            if "out" not in name
        },
    }
