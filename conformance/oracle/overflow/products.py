"""Products of several factors: what the order of the multiplications decides where they leave the range.

Multiplied in some order, factors above 1 may come first, and overflow where all of them together exceed the range; or
those below 1, and underflow to 0; or each apart, and infinity times 0 is NaN. A partial product that is infinite or 0
stays so, and the sign is that of all factors: there is nothing else, but the product itself. Beside underflow a partial
product is subnormal, and the product has as few digits: the rounding model asks for them (``lost_digits``).

Which factors a result has tells the op itself: with a sum in place of the product it adds up their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.op_traits.order_of_terms import MULTIPLIES_ELEMENTS
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.perturbation.accumulation import arguments_of, movable
from torchstone.conformance.oracle.tolerances import RANGE_EDGE_LOG2

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Factors:
    """A call that multiplies elements: ``product`` and ``total`` give, of its factors changed, their products and
    sums."""

    product: Callable[[Change], Tensor]
    total: Callable[[Change], Tensor]

    @classmethod
    def of(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Factors | None:
        """The factors of a call; None if it multiplies none."""
        sums, given = _SUMS.of(func), arguments_of(func, args, kwargs)
        if sums is None or given.get("reduce", "prod") not in ("prod", "multiply") or "value" in given:
            return None
        dtype = given.get("dtype", given.get("output_dtype"))
        if dtype is not None:  # whole numbers may be multiplied as floats
            converted = {key: given[key].to(dtype) for key in ("self", "inp") if key in given}
            given = given | converted

        def changed(change: Change) -> dict[str, Any]:
            return {key: change(value) if movable(value) else value for key, value in given.items()}

        def total(change: Change) -> Tensor:
            return sums(changed(change))

        return cls(lambda change: func(**changed(change)), total)

    def in_some_order(self, out: Tensor, room: float, tiny: float, choose: Callable[[Tensor], Tensor]) -> Tensor:
        """What products of real numbers give in some order. All float64.

        ``out`` is the product. ``room`` is what no partial product reaches in the narrower dtype (infinity: that of
        float64), ``tiny`` its least normal number: smaller ones may be flushed. ``choose`` is given where a result is
        free, and says for each result: 0 overflow, 1 underflow, 2 both, 3 neither.
        """
        widest = math.isinf(room)
        highest = 1024.0 if widest else math.log2(room)
        zero = self.total(lambda value: (value == 0).double()) > 0
        infinite = self.total(lambda value: torch.isinf(value).double()) > 0
        nan = self.total(lambda value: torch.isnan(value).double()) > 0
        over = infinite | (self.total(lambda value: _log2(value).clamp(min=0)) >= highest - RANGE_EDGE_LOG2)
        under = zero | (self.total(lambda value: _log2(value).clamp(max=0)) <= math.log2(tiny) + RANGE_EDGE_LOG2)
        sign = 1.0 - 2.0 * (self.total(lambda value: (value < 0).double()) % 2)
        exact = torch.where(over | under, self._in_range(), out) if widest else out
        exact = torch.where(zero, 0.0, torch.where(infinite, sign * math.inf, exact))
        chosen = choose((over & ~zero) | (under & ~infinite))
        result = torch.where(over & ~zero & (chosen == 0), sign * math.inf, exact)
        result = torch.where(under & ~infinite & (chosen == 1), 0.0, result)
        lost = nan | (zero & infinite) | (over & under & (chosen == 2))
        return torch.where(lost, math.nan, result)

    def of_complex_numbers(self, out: Tensor, choose: Callable[[Tensor], Tensor]) -> Tensor:
        """What products of complex128 numbers give in some order. Where partial products may overflow each part is an
        infinity, NaN, or what it is where nothing overflows; where they may underflow the number may be 0. ``choose``
        as for real numbers."""
        plain = self.total(lambda value: (~torch.isfinite(value) | (value == 0)).double()).real == 0
        over = self.total(lambda value: _log2(value).clamp(min=0).double()).real >= 1024.0 - RANGE_EDGE_LOG2
        least = math.log2(torch.finfo(torch.float64).tiny)
        under = self.total(lambda value: _log2(value).clamp(max=0).double()).real <= least + RANGE_EDGE_LOG2
        exact = torch.where(plain & (over | under), self._in_range(), out)
        kinds = choose(plain & (over | under)), choose(plain & over)
        exact = torch.where(plain & under & ~over & (kinds[0] == 1), 0.0, exact)
        parts = [
            _overflown(part, plain & over, kind) for part, kind in zip((exact.real, exact.imag), kinds, strict=True)
        ]
        return torch.complex(*parts)

    def lost_digits(self, dtype: torch.dtype) -> Tensor:
        """How far a product may be off, relative to itself, because a partial product of its factors below 1 is
        subnormal in ``dtype``: by up to half the smallest number there is, of the smallest of them.

        Not where partial products step over the subnormal numbers, from those in range to 0. Factors that are no
        smaller than the subnormal numbers are many lead to any of these; of smaller ones it takes one, or all.
        """
        info = torch.finfo(dtype)
        normal, digits = -math.log2(info.tiny), 1.0 - math.log2(info.eps)
        sizes = (self.total(change) for change in (_fine(digits), _coarse(digits), _count_coarse(digits)))
        fine, coarse, count = sizes
        reached = torch.zeros_like(fine, dtype=torch.bool)
        for start in (torch.zeros_like(fine), coarse / count.clamp(min=1.0), coarse):
            reached |= (start <= normal + digits) & (start + fine >= normal)
        return torch.where(reached, torch.exp2((fine + coarse - normal - digits).clamp(max=0.0)), 0.0)

    def _in_range(self) -> Tensor:
        """The products where nothing leaves the range: the fractions and the powers of two each for themselves. Nothing
        wider than float64 says what they are."""
        power = self.total(lambda value: _parts(value)[1])
        product = self.product(lambda value: _parts(value)[0])
        if not product.is_complex():
            return _shifted(product, power)
        return torch.complex(_shifted(product.real, power), _shifted(product.imag, power))


def _overflown(part: Tensor, free: Tensor, kind: Tensor) -> Tensor:
    for number, limit in enumerate((math.inf, -math.inf, math.nan)):
        part = torch.where(free & (kind == number), limit, part)
    return part


def _ordinary(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value) & (value != 0), value, 1.0)


def _log2(value: Tensor) -> Tensor:
    return _ordinary(value).abs().log2()


def _below_one(value: Tensor) -> Tensor:
    return -_log2(value).clamp(max=0)


def _fine(digits: float) -> Change:
    return lambda value: torch.where(_below_one(value) <= digits, _below_one(value), 0.0)


def _coarse(digits: float) -> Change:
    return lambda value: torch.where(_below_one(value) > digits, _below_one(value), 0.0)


def _count_coarse(digits: float) -> Change:
    return lambda value: (_below_one(value) > digits).double()


def _shifted(value: Tensor, power: Tensor) -> Tensor:
    """Times two to a power, in two steps: the power may be no number of float64."""
    half = (power / 2).floor()
    return torch.ldexp(torch.ldexp(value, half), power - half)


def _parts(value: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers around 1, so that their product stays in range, and the powers of two that make the others of them."""
    if value.is_complex():
        ordinary = _ordinary(value)
        power = torch.frexp(torch.maximum(ordinary.real.abs(), ordinary.imag.abs()))[1].double()
        return torch.complex(*(_shifted(part, -power) for part in (ordinary.real, ordinary.imag))), power
    fraction, power = torch.frexp(_ordinary(value))
    low = fraction.abs() < 2.0**-0.5
    return torch.where(low, 2.0 * fraction, fraction), power.double() - low.double()


_SUMS: Implementations[Callable[[dict[str, Any]], Tensor]] = Implementations(MULTIPLIES_ELEMENTS)


@_SUMS.register("cumprod")
def _running(given: dict[str, Any]) -> Tensor:
    return given["self"].cumsum(given["dim"])


@_SUMS.register("prod")
def _of_elements(given: dict[str, Any]) -> Tensor:
    if "dims" in given:  # of prims::prod
        return given["inp"].sum(given["dims"])
    x, dim = given["self"], given.get("dim")
    return x.sum() if dim is None else x.sum(dim, given.get("keepdim", False))


@_SUMS.register("index_reduce", "scatter", "scatter_reduce")
def _of_places(given: dict[str, Any]) -> Tensor:
    x, dim, index = given["self"], given["dim"], given["index"]
    source = given["source"] if "source" in given else given["src"]
    if not given.get("include_self", True):
        zeros = torch.zeros_like(source)
        x = x.index_copy(dim, index, zeros) if "source" in given else x.scatter(dim, index, zeros)
    return x.index_add(dim, index, source) if "source" in given else x.scatter_add(dim, index, source)
