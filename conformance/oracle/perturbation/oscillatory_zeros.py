"""Bessel's and Airy's functions beside their zeros, for the rounding model.

They are ATen ops of one step each. Whatever formula computes them, it adds up terms that are as large as the wave is
high, and beside a zero these cancel: what a correct computation gives there strays by any number of its own ULPs, and
by a few of the amplitude's. (So libraries state the error of these functions: relative to the modulus,
``hypot(J, Y)``.) Taken apart, the sum of value and amplitude is rounded, and the spread says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import no_dispatch_modes

special = torch.special


def _modulus(order: int) -> Callable[[Tensor], Tensor]:
    first, second = (getattr(special, f"bessel_{kind}{order}") for kind in "jy")
    return lambda x: torch.hypot(first(x.abs()), second(x.abs()))


_BEFORE_ALL_ZEROS = 0.75
_AMPLITUDES: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"bessel_{kind}{order}": _modulus(order) for kind in "jy" for order in (0, 1)},
    "spherical_bessel_j0": lambda x: 1 / x.abs(),
    "airy_ai": lambda x: x.clamp(max=0.0).abs() ** -0.25 / math.sqrt(math.pi),
}


def _wave(name: str) -> Callable[[Tensor], Tensor]:
    function, amplitude_of = getattr(special, name), _AMPLITUDES[name]

    def wave(x: Tensor) -> Tensor:
        with no_dispatch_modes():
            value, amplitude = function(x), amplitude_of(x)
            waves = (x.abs() > _BEFORE_ALL_ZEROS) & torch.isfinite(value) & torch.isfinite(amplitude)
            amplitude = torch.where(waves, amplitude, 0.0)
        return (value + amplitude) - amplitude

    return wave


WAVES: dict[Any, Callable[[Tensor], Tensor]] = {
    getattr(torch.ops.aten, f"special_{name}").default: _wave(name) for name in _AMPLITUDES
}
"""By overload, in float64."""
