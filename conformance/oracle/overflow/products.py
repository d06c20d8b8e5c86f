"""Products of several factors: what the order of the multiplications decides where they leave the range.

Multiplied in some order, factors above 1 may come first, and overflow where all of them together exceed the range; or
those below 1, and underflow to 0; or each apart, and infinity times 0 is NaN. A partial product that is infinite or 0
stays so, and the sign is that of all factors: there is nothing else, but the product itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.tolerances import SAME_EDGE

FACTORS = frozenset(("cumprod", "prod"))
"""What multiplies the elements of one operand."""


def orders_of_factors(func: Any, args: Any, out: Tensor, room: float, choose: Callable[[], Tensor]) -> Tensor:
    """What products of real numbers give in some order. All float64.

    ``out`` is what ``func`` gave. ``room`` is what no partial product reaches in the narrower dtype (infinity: that of
    float64). ``choose`` says for each result: 0 overflow, 1 underflow, 2 both, 3 neither, where it may.
    """
    factors, rest = args[0].to(torch.float64), args[1:]
    widest = math.isinf(room)
    highest = 1024.0 if widest else math.log2(room)
    lowest = math.log2(torch.finfo(torch.float64 if widest else torch.float32).tiny)  # subnormals may be flushed

    def total(values: Tensor) -> Tensor:
        """The sums of values over the factors of each result."""
        if schema_of(func).name == "aten::cumprod":
            return values.cumsum(rest[0])
        return values.sum(*rest[:2]) if rest else values.sum()

    finite = torch.isfinite(factors)
    ordinary = finite & (factors != 0)
    logs = torch.where(ordinary, factors, 1.0).abs().log2()
    zero, infinite, nan = (total(kind.double()) > 0 for kind in (factors == 0, torch.isinf(factors), factors.isnan()))
    over = infinite | (total(logs.clamp(min=0)) >= highest - SAME_EDGE)
    under = zero | (total(logs.clamp(max=0)) <= lowest + SAME_EDGE)
    sign = 1.0 - 2.0 * (total((factors < 0).double()) % 2)
    exact = out
    if widest:  # no wider twin says what it is: the fractions and the powers of two each for themselves
        fraction, power = torch.frexp(torch.where(ordinary, factors, 1.0))
        low = fraction.abs() < 2.0**-0.5  # all around 1, so that their product stays in range
        fraction, power = torch.where(low, 2.0 * fraction, fraction), power.double() - low.double()
        half = (total(power) / 2).floor()
        apart = torch.ldexp(torch.ldexp(func(fraction, *rest), half), total(power) - half)
        exact = torch.where(over | under, apart, out)
    exact = torch.where(zero, 0.0, torch.where(infinite, sign * math.inf, exact))
    chosen = choose()
    result = torch.where(over & ~zero & (chosen == 0), sign * math.inf, exact)
    result = torch.where(under & ~infinite & (chosen == 1), 0.0, result)
    lost = nan | (zero & infinite) | (over & under & (chosen == 2))
    return torch.where(lost, math.nan, result)
