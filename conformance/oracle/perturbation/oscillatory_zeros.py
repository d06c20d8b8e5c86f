"""Bessel's and Airy's functions, polygammas and the logarithm of gamma beside their zeros, for the rounding model.

They are ATen ops of one step each. Whatever formula computes them, it adds up terms as large as the amplitude, and
beside a zero these cancel: what a correct computation gives there strays by any number of its own ULPs, and by a few of
the amplitude's. (So libraries state the error of these functions: relative to the modulus, ``hypot(J, Y)``.) Taken
apart, the sum of value and amplitude is rounded, and the spread says by how much.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import no_dispatch_modes
from torchstone.conformance.oracle.op_traits.rounding import OSCILLATES
from torchstone.conformance.oracle.op_traits.trait import Implementations

special = torch.special
_BEFORE_ALL_ZEROS = 0.75
_AMPLITUDES: Implementations[Callable[..., Tensor]] = Implementations(OSCILLATES)


def _modulus(order: int) -> Callable[[Tensor], Tensor]:
    first, second = (getattr(special, f"bessel_{kind}{order}") for kind in "jy")
    return lambda x: torch.where(x.abs() > _BEFORE_ALL_ZEROS, torch.hypot(first(x.abs()), second(x.abs())), 0.0)


def _of_digamma(x: Tensor) -> Tensor:
    """The logarithm beyond the recurrence up to 10, and of negative numbers the cotangent that reflects them."""
    logarithm = torch.where(x < 10, math.log(10), 0.0)
    return torch.where(x < 0, (math.pi / torch.tan(math.pi * x)).abs() + (10 + x.abs()).log(), logarithm)


def _of_lgamma(x: Tensor) -> Tensor:
    """Of negative numbers the logarithm that their reflection subtracts from another one, which is nearly as large."""
    return torch.where(x < 0, torch.lgamma(1 - x).abs(), 0.0)


def _of_polygamma(order: int, x: Tensor) -> Tensor:
    """Of negative numbers the terms of the two poles beside them, which cancel where the order is even."""
    if order == 0:
        return _of_digamma(x)
    poles = [torch.floor(x), torch.ceil(x)]
    return torch.where(x < 0, sum(math.gamma(order + 1) * (x - pole).abs() ** -(order + 1) for pole in poles), 0.0)


for _order in (0, 1):
    _AMPLITUDES.register(f"special_bessel_j{_order}", f"special_bessel_y{_order}")(_modulus(_order))
_AMPLITUDES.register("special_spherical_bessel_j0")(
    lambda x: torch.where(x.abs() > _BEFORE_ALL_ZEROS, 1 / x.abs(), 0.0)
)
_AMPLITUDES.register("digamma")(_of_digamma)
_AMPLITUDES.register("lgamma")(_of_lgamma)
_AMPLITUDES.register("polygamma")(_of_polygamma)
_AMPLITUDES.register("special_airy_ai")(lambda x: x.clamp(max=0.0).abs() ** -0.25 / math.sqrt(math.pi))


def _around_amplitude(name: str, amplitude_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    short = name.removeprefix("special_")
    function = getattr(special, short, None) or getattr(torch, short)

    def value_around_amplitude(*args: Any) -> Tensor:
        with no_dispatch_modes():
            value, amplitude = function(*args), amplitude_of(*args)
            amplitude = torch.where(torch.isfinite(value) & torch.isfinite(amplitude), amplitude, 0.0)
        return (value + amplitude) - amplitude

    return value_around_amplitude


@functools.cache
def oscillating_ops() -> dict[Any, Callable[..., Tensor]]:
    """The functions in two steps, by overload, in float64."""
    return {
        getattr(torch.ops.aten, name).default: _around_amplitude(name, amplitude)
        for name, amplitude in _AMPLITUDES.functions.items()
    }
