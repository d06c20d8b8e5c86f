"""A product that is multiplied by 0: left out, or infinity times 0.

Of ``beta=0`` PyTorch promises that NaN and infinities of the operand are ignored, of ``alpha=0`` it promises nothing.
Eager leaves the product out where BLAS computes it (``addmm`` in float32), and multiplies it where a kernel of its own
does (``addmm`` in bfloat16, ``addmv`` of complex numbers, ``baddbmm`` of small matrices). PyTorch's decompositions
multiply. So either answer is right, of each element.

    addmm(c, a, b, alpha=0), with a NaN in a:    c, or c + NaN wherever the product a b is NaN or infinite

Eager computes ``(value * a) * b`` for ``addcmul``, PyTorch's decomposition ``value * (a * b)``. With ``value=0`` the
first is 0 and the second NaN where ``a * b`` leaves the range. Neither leaves out a NaN.

    addcmul(c, a, b, value=0), with a = b = 1e38:    c, or NaN

A linear interpolation weighs the neighbours of each place, and some weights are 0. There too the product may be left
out:

    interpolate([[1, inf]], size=(1, 2), mode="bilinear"):    [[1, inf]], or NaN

A transposed convolution is one of its input with zeros around and between the elements, as PyTorch documents: kernels
for a GPU multiply them by the weights, of which infinity and NaN give NaN. Eager leaves them out:

    conv_transpose1d([[1, 2]], [[[3, inf]]], stride=2):    [3, inf, 6, inf], or [NaN, inf, NaN, inf]

Eager multiplies by ``alpha`` in every sum and difference of complex numbers, as a complex number whose other part is 0:

    sub(1 + 2j, inf + 1j):    -inf + 1j, or -inf + NaN j
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.equality import same_values
from torchstone.conformance.oracle.op_traits.right_answers import (
    ADDS_A_MULTIPLE,
    INTERPOLATES,
    PADS_WITH_ZEROS,
    SCALES_PRODUCT,
)
from torchstone.conformance.oracle.pytree import flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


class ScaledByZero(ComputingMode):
    """Leaves out each product that is multiplied by 0, or (``multiplied``) multiplies it. ``met`` says that there may
    be one which is not finite."""

    def __init__(self, multiplied: bool, met: list[Any]) -> None:
        super().__init__()
        self._multiplied = multiplied
        self._met = met

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if INTERPOLATES.holds(func) and not bool(torch.isfinite(args[0]).all()):
            self._met.append(func)
            return func(*args, **kwargs) if self._multiplied else _interpolated(func, *args, **kwargs)
        if PADS_WITH_ZEROS.holds(func) and args[6] and not bool(torch.isfinite(args[1]).all()):
            self._met.append(func)
            out = func(*args, **kwargs)
            return out.masked_fill_(_meets_a_zero(*args), math.nan) if self._multiplied else out
        if ADDS_A_MULTIPLE.holds(func) and "out" not in kwargs and any(_not_finite(arg) for arg in args):
            self._met.append(func)
            return func(*args, **kwargs) if self._multiplied else _by_parts(func, *args, **kwargs)
        if not SCALES_PRODUCT.holds(func) or not scales_by_zero(kwargs) or "out" in kwargs or len(args) < 3:
            return func(*args, **kwargs)
        base, *factors = args[:3]
        if "value" in kwargs:
            product = func(torch.zeros_like(base), *factors, *args[3:], **(kwargs | {"value": 1}))
            return self._with(func(*args, **kwargs), product, func)
        product = func(torch.zeros_like(base), *factors, *args[3:], **(kwargs | {"alpha": 1, "beta": 0}))
        return self._with(func(base, *map(torch.zeros_like, factors), *args[3:], **kwargs), product, func)

    def _with(self, out: Tensor, product: Tensor, func: Any) -> Tensor:
        finite = torch.isfinite(product)
        if not bool(finite.all()):
            self._met.append(func)
            if self._multiplied:
                out.masked_fill_(~finite, math.nan)
        return out


def _interpolated(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What the neighbours give that have a weight, which is never negative."""
    finite, up, down, nan = (
        func(part.to(x.dtype), *args, **kwargs)
        for part in (torch.where(torch.isfinite(x), x, 0), x == math.inf, x == -math.inf, torch.isnan(x))
    )
    finite = finite + torch.where(up > 0, math.inf, 0.0) + torch.where(down > 0, -math.inf, 0.0)
    return finite.masked_fill(nan > 0, math.nan).to(x.dtype)


def _meets_a_zero(x: Tensor, weight: Tensor, _: Any, *how: Any) -> Tensor:
    """Where a weight that is not finite falls on a zero that a transposed convolution puts around or between the
    elements: fewer of them fall on elements than there are. ``how``: from the stride to the number of groups."""
    groups = how[-1]
    wild = (~torch.isfinite(weight)).float()
    met = torch.ops.aten.convolution(torch.ones_like(x, dtype=wild.dtype), wild, None, *how)
    each = wild.reshape(groups, -1, *wild.shape[1:]).transpose(1, 2).flatten(2).sum(2).flatten()
    return met.round() < each.reshape(-1, *[1] * (weight.dim() - 2))


def _not_finite(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.is_complex() and not bool(torch.isfinite(arg).all())


def _by_parts(func: Any, x: Any, y: Any, *rest: Any, **kwargs: Any) -> Tensor:
    """A sum, difference or distance of complex numbers whose parts come of the same parts of these."""
    if base_name(func) == "dist":
        return torch.linalg.vector_norm(_by_parts(torch.ops.aten.sub.Tensor, x, y), *rest)
    alpha = complex(rest[0] if rest else kwargs.get("alpha", 1))
    out = func(x, y, *rest, **kwargs)
    if alpha.imag:
        return out
    step = getattr(torch.ops.aten, base_name(func)).Tensor
    x, y = (torch.view_as_real(torch.as_tensor(v).to(out.dtype).resolve_conj()) for v in (x, y))
    return torch.view_as_complex(step(x, y, alpha=alpha.real).contiguous())


def scales_by_zero(kwargs: Mapping[str, Any]) -> bool:
    """Whether a call multiplies its product by 0."""
    return any(kwargs.get(name, 1) == 0 for name in ("alpha", "value"))


def zero_factor_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with such products left out, and the backend's run with these numbers where it has what follows from the
    other choice.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where no product that is not finite is
    multiplied by 0.
    """
    if not any(map(_has_nan, (*flatten(expected.outputs), *flatten(actual.outputs)))):
        return  # a product that counts is NaN
    met: list[Any] = []
    without, multiplied = (referee.inside(partial(ScaledByZero, choice, met)) for choice in (False, True))
    wanted, others = without.eager.leaves, multiplied.eager.leaves
    outputs = len(flatten(actual.outputs))
    given = flatten((actual.outputs, actual.inputs))
    if met and len(wanted) == len(others) == len(given):
        given = [_settled(*leaf) for leaf in zip(wanted, others, given, strict=True)]
        eager = replace(expected, outputs=wanted[:outputs], inputs=tuple(wanted[outputs:]))
        yield without, eager, replace(actual, outputs=given[:outputs], inputs=tuple(given[outputs:]))


def _has_nan(leaf: Any) -> bool:
    floats = (
        isinstance(leaf, Tensor) and leaf.layout is torch.strided and (leaf.is_floating_point() or leaf.is_complex())
    )
    return not floats or bool(torch.isnan(leaf).any())


def _settled(wanted: Any, other: Any, given: Any) -> Any:
    """The backend's numbers, those of the one choice in place of those that it has of the other."""
    tensors = (wanted, other, given)
    if not all(isinstance(v, Tensor) and v.dtype == given.dtype and v.shape == given.shape for v in tensors):
        return given
    if any(v.layout is not torch.strided for v in tensors):
        return given
    return torch.where(same_values(given, other) & ~same_values(wanted, other), wanted, given)
