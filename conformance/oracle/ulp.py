"""Units in the last place: how large one is, and how to move a tensor by one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchstone.conformance.oracle.tolerances import real_dtype

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def precision(dtype: torch.dtype) -> int:
    """Bits of significand, the implicit one included: 24 for float32, 8 for bfloat16. Complex: of the component."""
    return 1 - round(math.log2(torch.finfo(real_dtype(dtype)).eps))


def ulp(magnitude: Tensor, dtype: torch.dtype) -> Tensor:
    """The spacing of ``dtype`` at each magnitude (float64, not negative), down to the spacing of its subnormals."""
    info = torch.finfo(real_dtype(dtype))
    bits = precision(dtype)
    lowest = round(math.log2(info.tiny)) + 1
    _, exponent = torch.frexp(magnitude.clamp(max=torch.finfo(torch.float64).max))  # a complex modulus may overflow
    exponent = torch.where(magnitude == 0, lowest, exponent.to(torch.int64).clamp(min=lowest))
    return torch.pow(2.0, (exponent - bits).to(torch.float64))


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in float64 or complex128: exact for every floating dtype PyTorch has."""
    tensor = tensor.detach()
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def representable(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Where float64 or complex128 values are exactly numbers of ``dtype``; NaN and infinity count as such."""
    if values.is_complex():
        parts = torch.view_as_real(values.resolve_conj())
        return representable(parts, real_dtype(dtype)).all(-1)
    real = real_dtype(dtype)
    return (values.to(real).to(torch.float64) == values) | ~torch.isfinite(values)


def step(tensor: Tensor, direction: Tensor | int) -> Tensor:
    """Each finite non-zero number moved to the next one away from zero (+1) or towards it (-1); others stay.

    Floating and complex dtypes, every width. Zeros stay: they are mostly structure (masks, padding, triangles).
    """
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.resolve_conj().resolve_neg())
        if isinstance(direction, Tensor):
            direction = direction.unsqueeze(-1)
        return torch.view_as_complex(step(parts, direction).contiguous())
    plain = tensor.resolve_neg().contiguous()
    integers = plain.view(_BITS[plain.element_size()])
    moved = (integers + torch.as_tensor(direction, dtype=integers.dtype)).view(plain.dtype)
    sound = _finite(plain) & _finite(moved) & (plain.to(torch.float64) != 0)
    return torch.where(sound.view(torch.bool), moved.to(torch.float64), plain.to(torch.float64)).to(plain.dtype)


def _finite(tensor: Tensor) -> Tensor:
    return torch.isfinite(tensor.to(torch.float64))
