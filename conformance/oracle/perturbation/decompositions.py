"""Ops by smaller steps, each of which the rounding model rounds: PyTorch's decompositions, and those it has not.

Orthogonal polynomials are ATen ops of one step each, in which terms cancel: near a zero of the polynomial, what a
correct computation gives strays by any number of ULPs. Taken apart by their three-term recurrences, each step is
rounded, and the spread says by how many. For ops that oscillate see ``oscillatory_zeros``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import no_dispatch_modes
from torchstone.conformance.oracle.equality import close
from torchstone.conformance.oracle.op_traits.rounding import NOT_DECOMPOSED, RECURRENCE
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.perturbation.antialias import antialiased_ops
from torchstone.conformance.oracle.perturbation.oscillatory_zeros import oscillating_ops
from torchstone.conformance.oracle.pytree import leaves_of
from torchstone.conformance.oracle.reference.without_float64 import formulas
from torchstone.conformance.oracle.tolerances import FORMULA_TOLERANCE


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """From overloads of operators to functions that compute the same in steps."""
    from torchstone.compiler._torch.decompositions import (
        decomposition_table,
    )  # half a second, and only for cases that need a referee

    table = {**decomposition_table, **recurrences(), **oscillating_ops(), torch.ops.aten.addbmm.default: _addbmm}
    table |= {op: functools.partial(_density, op) for op in _histograms()} | antialiased_ops() | formulas()
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    table[attention] = functools.partial(_attention, attention)
    for name, weights in _WINDOWS.items():
        packet = getattr(torch.ops.aten, name)
        overloads = [each for each in packet.overloads() if not each.endswith("out")]
        table |= {getattr(packet, each): functools.partial(_window, weights) for each in overloads}
    for name in NOT_DECOMPOSED.ops:
        operator, _, overload = name.partition(".")
        table.pop(getattr(getattr(torch.ops.aten, operator), overload), None)
    return table


def agree(left: Any, right: Any, lost: float = 0.0) -> bool:
    """Whether a decomposition computes what the op does: some are wrong for complex numbers or odd layouts. ``lost``:
    what the op's own float64 may be off by, relative to the largest of its numbers, or to 1, which is the height of a
    wave, where all of them lie beside its zeros."""
    pairs = zip(leaves_of(left), leaves_of(right), strict=True)
    relative, absolute = FORMULA_TOLERANCE
    return all(
        a.shape == b.shape and a.dtype == b.dtype and close(a, b, relative, absolute + lost * max(_largest(b), 1.0))
        for a, b in pairs
        if isinstance(a, Tensor)
    )


def lost_by_angles(func: Any, args: Any) -> float:
    """What a polynomial of a high degree is off by in float64: an angle that it multiplies has fewer digits left."""
    if not RECURRENCE.holds(func):
        return 0.0
    degrees = torch.as_tensor(args[1], dtype=torch.float64).abs()
    highest = float(degrees[degrees.isfinite()].max()) if bool(degrees.isfinite().any()) else 0.0
    return min(4 * torch.finfo(torch.float64).eps * highest, 1.0)


def _largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _addbmm(x: Tensor, a: Tensor, b: Tensor, **scales: Any) -> Tensor:
    """All products and their sum as one product of matrices, which is scaled once; eager scales each before it adds."""
    return torch.addmm(x, a.transpose(0, 1).flatten(1), b.flatten(0, 1), **scales)


def _attention(
    op: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, attn_mask: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Attention in steps, beside the op's own ``logsumexp``: PyTorch's decomposition has the weights in its place."""
    with no_dispatch_modes():  # one of them takes the op apart by this function
        of_rows = op(query, key, value, *rest, attn_mask=attn_mask, **options)[1]
    shared = query.shape[1] != key.shape[1]
    by_steps = torch.ops.aten._scaled_dot_product_attention_math.default.decompose  # a mode would see it whole
    return by_steps(query, key, value, attn_mask, *rest, enable_gqa=shared, **options)[0], of_rows


_WINDOWS = {"hann_window": (0.5, -0.5), "hamming_window": (0.54, -0.46), "blackman_window": (0.42, -0.5, 0.08)}
"""Windows that are sums of cosines, which cancel towards the ends: the weight of each."""


def _window(
    weights: tuple[float, ...], length: int, periodic: bool = True, *of_first: float, dtype: Any = None, **_: Any
) -> Tensor:
    """``of_first``: the weights of the first two in place of the usual ones, the second one to be subtracted."""
    given = [sign * weight for sign, weight in zip((1, -1), of_first, strict=False)]
    angle = torch.arange(length, dtype=dtype) * (2 * math.pi / max(length if periodic else length - 1, 1))
    terms = [weight * torch.cos(angle * k) for k, weight in enumerate([*given, *weights[len(given) :]])]
    return functools.reduce(torch.add, terms)


def _histograms() -> list[Any]:
    aten = torch.ops.aten
    return [
        aten.histogram.bin_ct,
        aten.histogram.bins_tensor,
        aten._histogramdd_from_bin_cts.default,
        aten._histogramdd_from_bin_tensors.default,
    ]


def _density(op: Any, x: Tensor, bins: Any, *, density: bool = False, **options: Any) -> Any:
    """A density is the counts by their sum, by the widths of the bins along each dim."""
    if not density:
        raise NotImplementedError("the counts are one step")
    found = op(x, bins, **options)
    counts, *edges = found if isinstance(found, tuple) else (found,)
    if not edges and isinstance(bins[0], int):
        edges = torch.ops.aten._histogramdd_bin_edges(x, bins, **options)
    out = counts / counts.sum()
    for dim, edge in enumerate(edges or bins):
        out = out / edge.diff().reshape([-1 if at == dim else 1 for at in range(counts.dim())])
    return (out, *edges) if isinstance(found, tuple) else out


# The three-term recurrences

# From x, k and the polynomials of degrees k - 1 and k, the one of degree k + 1. Doubling is exact, and comes after a
# step that is rounded, so that x itself is never moved.
_Following = Callable[[Tensor, Any, Tensor, Tensor], Tensor]
_Wave = Callable[[Tensor], Tensor]
MAX_DEGREE = 256
"""Up to here each step of a recurrence is one."""
OF_ANGLES = 6
"""Beyond this degree eager takes a Chebyshev polynomial of a number between -1 and 1 for a wave of its angle."""
MAX_MATRICES = 2**20
"""How many are multiplied at once at most, for all numbers of a result together."""


def _recurrence(
    first: Callable[[Tensor], Tensor],
    following: _Following,
    argument: Callable[[Tensor], Tensor],
    of_angle: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Any:
    """``of_angle``: another formula, for degrees that would take too many steps; without one, a product of matrices.

    It is eager's, too, between -1 and 1: near a zero its error is that of the angle, and larger than a recurrence's.
    """
    beyond = of_angle or functools.partial(_by_matrices, first, following)

    def polynomial(x: Any, n: Any) -> Tensor:
        x, n = (torch.as_tensor(v, dtype=torch.float64) for v in (x, n))
        shape = torch.broadcast_shapes(x.shape, n.shape)
        # What int64 cannot hold counts as negative.
        x, degrees = x.expand(shape), torch.where(n.abs() < 2.0**63, n.trunc(), -1.0).expand(shape)
        x = argument(x)
        before, last = torch.ones_like(x), first(x)
        out = torch.where(degrees >= 1, last, torch.where(degrees == 0, before, torch.zeros_like(x)))
        for k in range(1, int(torch.where(degrees <= MAX_DEGREE, degrees, 0.0).amax()) if n.numel() else 0):
            before, last = last, following(x, k, before, last)
            out = torch.where(degrees > k, last, out)
        far = degrees > MAX_DEGREE
        if of_angle is not None:
            far |= (degrees > OF_ANGLES) & (x.abs() < 1)
        return torch.where(far, beyond(x, degrees), out) if far.any() else out

    return polynomial


def _by_matrices(first: Callable[[Tensor], Tensor], following: _Following, x: Tensor, degrees: Tensor) -> Tensor:
    """A recurrence is linear in the two polynomials before: each degree multiplies them by a matrix. Rounding moves its
    elements as it moves a step, and all are multiplied in pairs, in few steps of many numbers."""
    highest = int(degrees.amax())
    if highest * x.numel() > MAX_MATRICES:
        raise ValueError(f"a degree of {highest}")
    k = torch.arange(1, highest, dtype=torch.float64).reshape(-1, *[1] * x.dim())
    one, zero, used = torch.ones_like(x), torch.zeros_like(x), k < degrees
    last = torch.where(used, following(x, k, zero, one), 1.0), torch.where(used, following(x, k, one, zero), 0.0)
    rows = [*last, used.double(), (~used).double()]
    while len(rows[0]) > 1:
        whole = [
            torch.cat([row, row.new_full((len(row) % 2, *x.shape), at)])
            for row, at in zip(rows, (1, 0, 0, 1), strict=True)
        ]
        (a, b, c, d), (p, q, r, s) = [row[::2] for row in whole], [row[1::2] for row in whole]
        rows = [p * a + q * c, p * b + q * d, r * a + s * c, r * b + s * d]
    return rows[0][0] * first(x) + rows[1][0]


def _chebyshev(x: Tensor, k: int, before: Tensor, last: Tensor) -> Tensor:
    return 2 * (x * last) - before


def _by_angle(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The Chebyshev polynomials of cos(a), and of cosh(a), which are those of cos(i a)."""
    itself = getattr(torch.special, f"chebyshev_polynomial_{kind}")

    def polynomial(x: Tensor, degrees: Tensor) -> Tensor:
        with no_dispatch_modes():
            own = itself(x, degrees)
        inside = _of_angle(kind, torch.cos, torch.sin, torch.acos(x), degrees)
        angle = torch.acosh(x.abs())
        outside, mirrored = (
            _of_angle(each, torch.cosh, torch.sinh, angle, degrees) for each in (kind, _MIRRORED.get(kind, kind))
        )
        outside = torch.copysign(torch.where(x > 0, outside, mirrored), own)
        outside = torch.where(torch.isfinite(outside) & torch.isfinite(own), outside, own)
        return torch.where(x.abs() < 1, inside, outside)

    return polynomial


_MIRRORED = {"v": "w", "w": "v"}
"""The kind that a polynomial of -x is of, but for its sign."""


def _of_angle(kind: str, even: _Wave, odd: _Wave, angle: Tensor, degrees: Tensor) -> Tensor:
    if kind == "t":
        return even(degrees * angle)
    if kind == "u":
        return odd((degrees + 1) * angle) / odd(angle)
    wave = even if kind == "v" else odd
    return wave((degrees + 0.5) * angle) / wave(angle / 2)


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


_POLYNOMIALS: Implementations[Callable[..., Tensor]] = Implementations(RECURRENCE)
_CHEBYSHEV_OF_DEGREE_1: dict[str, Callable[[Tensor], Tensor]] = {
    "t": _itself,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * (x - 0.5),
    "w": lambda x: 2 * (x + 0.5),
}
for _kind, _first in _CHEBYSHEV_OF_DEGREE_1.items():
    _POLYNOMIALS.register(f"special_chebyshev_polynomial_{_kind}")(
        _recurrence(_first, _chebyshev, _itself, _by_angle(_kind))
    )
    _POLYNOMIALS.register(f"special_shifted_chebyshev_polynomial_{_kind}")(
        _recurrence(_first, _chebyshev, lambda x: 2 * (x - 0.5), _by_angle(_kind))
    )
_POLYNOMIALS.register("special_hermite_polynomial_h")(_recurrence(lambda x: 2 * x, _hermite, _itself))
_POLYNOMIALS.register("special_hermite_polynomial_he")(_recurrence(_itself, _probabilists, _itself))
_POLYNOMIALS.register("special_laguerre_polynomial_l")(_recurrence(lambda x: 1 - x, _laguerre, _itself))
_POLYNOMIALS.register("special_legendre_polynomial_p")(_recurrence(_itself, _legendre, _itself))


@functools.cache
def recurrences() -> dict[Any, Callable[..., Tensor]]:
    """The polynomials by overload, in float64."""
    return {
        getattr(getattr(torch.ops.aten, name), overload): polynomial
        for name, polynomial in _POLYNOMIALS.functions.items()
        for overload in ("default", "x_scalar", "n_scalar")
    }
