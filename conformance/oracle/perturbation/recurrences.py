"""Orthogonal polynomials by their three-term recurrences, for the rounding model: PyTorch does not decompose them.

They are ATen ops of one step each, in which terms cancel: near a zero of the polynomial, what a correct computation
gives strays by any number of ULPs. Taken apart, each step is rounded, and the spread says by how many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# From x, k and the polynomials of degrees k - 1 and k, the one of degree k + 1. Doubling is exact, and comes after a
# step that is rounded, so that x itself is never moved.
_Step = Callable[[Tensor, int, Tensor, Tensor], Tensor]
HIGHEST = 256


def _recurrence(first: Callable[[Tensor], Tensor], following: _Step, argument: Callable[[Tensor], Tensor]) -> Any:
    def polynomial(x: Any, n: Any) -> Tensor:
        x, n = (torch.as_tensor(v, dtype=torch.float64) for v in (x, n))
        shape = torch.broadcast_shapes(x.shape, n.shape)
        # What int64 cannot hold counts as negative.
        x, degrees = x.expand(shape), torch.where(n.abs() < 2.0**63, n.trunc(), -1.0).expand(shape)
        highest = int(degrees.amax()) if n.numel() else 0
        if highest > HIGHEST:
            raise ValueError(f"a degree of {highest}")
        x = argument(x)
        before, last = torch.ones_like(x), first(x)
        out = torch.where(degrees >= 1, last, torch.where(degrees == 0, before, torch.zeros_like(x)))
        for k in range(1, highest):
            before, last = last, following(x, k, before, last)
            out = torch.where(degrees > k, last, out)
        return out

    return polynomial


def _chebyshev(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return 2 * (x * last) - before


def _hermite(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return 2 * (x * last) - 2 * k * before


def _probabilists(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return x * last - k * before


def _laguerre(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return ((2 * k + 1 - x) * last - k * before) / (k + 1)


def _legendre(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return ((2 * k + 1) * (x * last) - k * before) / (k + 1)


def _itself(x: Tensor) -> Tensor:
    return x


_FIRST: dict[str, Callable[[Tensor], Tensor]] = {
    "chebyshev_polynomial_t": _itself,
    "chebyshev_polynomial_u": lambda x: 2 * x,
    "chebyshev_polynomial_v": lambda x: 2 * (x - 0.5),
    "chebyshev_polynomial_w": lambda x: 2 * (x + 0.5),
}
_POLYNOMIALS = {
    **{name: _recurrence(first, _chebyshev, _itself) for name, first in _FIRST.items()},
    **{f"shifted_{name}": _recurrence(first, _chebyshev, lambda x: 2 * (x - 0.5)) for name, first in _FIRST.items()},
    "hermite_polynomial_h": _recurrence(lambda x: 2 * x, _hermite, _itself),
    "hermite_polynomial_he": _recurrence(_itself, _probabilists, _itself),
    "laguerre_polynomial_l": _recurrence(lambda x: 1 - x, _laguerre, _itself),
    "legendre_polynomial_p": _recurrence(_itself, _legendre, _itself),
}

RECURRENCES: dict[Any, Callable[..., Tensor]] = {
    getattr(getattr(torch.ops.aten, f"special_{name}"), overload): polynomial
    for name, polynomial in _POLYNOMIALS.items()
    for overload in ("default", "x_scalar", "n_scalar")
}
"""By overload, in float64."""
