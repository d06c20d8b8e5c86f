"""Variants of the numbers in the inputs: special values, extremes, cancellation. Shapes and layouts stay.

Eager is left to the worker: some of its kernels end the process for a NaN, as MKL's eigenvalues do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchstone.conformance.variants.support import of_each_input


def special_values(tensor: Tensor) -> Tensor:
    """Every third element replaced by NaN of either sign, an infinity, a zero, a subnormal or an extreme, in turn."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    return _sprinkled(tensor, [math.nan, math.inf, -math.inf, -0.0, info.tiny / 2, info.max, info.min, 0.0, -math.nan])


def _extremes(tensor: Tensor) -> Tensor:
    """Every third element replaced by a number at an end of what the dtype holds, in turn."""
    if not tensor.numel() or tensor.dtype == torch.bool:
        return tensor
    if _floats(tensor):
        info = torch.finfo(tensor.dtype)
        ends = [info.max, info.min, info.tiny, -info.tiny, info.eps, 1 / info.eps, math.sqrt(info.max), -1.0]
        return _sprinkled(tensor, ends)
    limits = torch.iinfo(tensor.dtype)
    return _sprinkled(tensor, [limits.max, limits.min, limits.max - 1, 0, 1, limits.max // 2 + 1])


def _small(tensor: Tensor) -> Tensor:
    """Every third element replaced by a number so near 0 that one plus it is one, or next to one, in turn."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    near, least = info.eps / 8, math.sqrt(info.tiny)
    return _sprinkled(tensor, [near, -near, least, -least, math.sqrt(info.eps), 1 + info.eps, 1 - info.eps, -2 * near])


def _shifted(tensor: Tensor) -> Tensor:
    """The same numbers beside one that is larger by half the digits of the dtype."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    sizes = torch.view_as_real(tensor.resolve_conj()).abs() if tensor.is_complex() else tensor.abs()
    largest = float(sizes.to(torch.float64).nan_to_num(0, 0, 0).max()) or 1.0
    far = 2.0 ** (math.ceil(math.log2(largest)) - math.floor(math.log2(info.eps) / 2))
    return tensor if far > info.max / 4 else tensor + far


def _floats(tensor: Tensor) -> bool:
    return bool(tensor.numel()) and (tensor.is_floating_point() or tensor.is_complex())


def _sprinkled(tensor: Tensor, values: Sequence[float]) -> Tensor:
    """A copy with every third element replaced, by the values in turn; of complex numbers every third part."""
    real = torch.view_as_real(tensor.resolve_conj()).clone() if tensor.is_complex() else tensor.clone()
    wide = torch.float64 if real.is_floating_point() else real.dtype
    flat = real.reshape(-1)
    places = torch.arange(0, flat.numel(), 3)
    wanted = torch.tensor(values, dtype=wide)
    chosen = wanted.to(real.dtype)
    if real.is_floating_point() and real.dtype.itemsize > 1:  # a cast may drop the sign of a NaN
        chosen = torch.copysign(chosen, torch.copysign(torch.ones_like(wanted), wanted).to(real.dtype))
    flat[places] = chosen[torch.arange(len(places)) % len(values)]
    out = flat.view(real.shape)
    return torch.view_as_complex(out) if tensor.is_complex() else out


_NO_FLOATS = "no input of floats"

SPECIAL = of_each_input(
    "NaN, infinities and zeros of both signs, subnormals, extremes.", special_values, _NO_FLOATS, try_eager=False
)
EXTREMES = of_each_input(
    "The largest and smallest finite numbers of the dtype, integers too.",
    _extremes,
    "no input of numbers",
    try_eager=False,
)
SMALL = of_each_input(
    "Numbers next to 0 and 1, where differences cancel and one plus a number is one.",
    _small,
    _NO_FLOATS,
    try_eager=False,
)
SHIFTED = of_each_input(
    "Numbers far from 0 and near each other, whose squares cancel.", _shifted, _NO_FLOATS, try_eager=False
)
