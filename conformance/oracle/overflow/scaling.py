"""Room beyond the range of float64: operands scaled by a power of two, which rounds nothing that is near the range.

Nothing wider than float64 can run its programs. An op that is homogeneous of degree d (a sum and a transform of degree
1, a contraction and a variance of degree 2) gives ``2**(-d * SHIFT)`` times its result when its operands are scaled by
``2**-SHIFT``: the same digits, and what no longer overflows did so by the order of the steps alone. Operands below
``2**-530`` lose digits: what they add to a sum is a part in ``2**460`` of what overflows, but times infinity none of
them is 0. Of degree 3 (a bilinear form) there is no such room.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torchstone.compiler._torch.pytrees import tree_flatten, tree_unflatten
from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.oracle.perturbation.accumulation import movable

SHIFT = 544
"""A product of the two largest numbers, scaled twice, leaves room for sums of ``2**64`` such."""
MAX_DEGREE = 2
"""The degrees that there is this room for."""
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
"""What ordinary numbers are apart from those that programs are written with."""


def shifted(leaf: Any, by: int = -SHIFT) -> Any:
    """A tensor of float64 or complex128 times ``2**by``; anything else as it is."""
    if not movable(leaf):
        return leaf
    if leaf.is_complex():
        return torch.complex(shifted(leaf.real, by), shifted(leaf.imag, by))
    half = by // 2
    return leaf * math.ldexp(1.0, half) * math.ldexp(1.0, by - half)  # either factor alone is a float64


def kept_from_zero(leaf: Any, by: int) -> Any:
    """What is ``shifted``, with the least numbers in place of those that underflow: an infinity times one is infinite,
    and times 0 it is NaN."""
    if not movable(leaf):
        return leaf
    if leaf.is_complex():
        return torch.complex(kept_from_zero(leaf.real, by), kept_from_zero(leaf.imag, by))
    small = shifted(leaf, by)
    least = torch.copysign(torch.full_like(leaf, math.ldexp(1.0, -1074)), leaf)
    return torch.where((small == 0) & (leaf != 0), least, small)


def unless_nan(value: Any, other: Any) -> Any:
    """A result, and ``other`` in place of NaN."""
    return torch.where(torch.isnan(value), other, value) if movable(value) else value


def restored(out: Tensor, scaled: Tensor, degree: int, error: Any = 0.0) -> Tensor:
    """``out``, and where it is not finite the number that ``scaled`` stands for, rounded to the range: to its end where
    ``scaled`` is beyond that by no more than ``error``, which rounding moves it by."""
    if out.is_complex():
        return torch.complex(
            restored(out.real, scaled.real, degree, error), restored(out.imag, scaled.imag, degree, error)
        )
    end = math.ldexp(torch.finfo(torch.float64).max, -degree * SHIFT)
    held = torch.where(scaled.abs() - error <= end, scaled.clamp(-end, end), scaled)
    return torch.where(torch.isfinite(out), out, shifted(held, degree * SHIFT))


def homogeneous_operands(
    func: Any, args: Any, kwargs: dict[str, Any], known: dict[Any, Any]
) -> tuple[dict[int, int], list[int] | None]:
    """The operands (leaves of ``(args, kwargs)``, by index) in which ``func`` is homogeneous: all, or one of them.

    Each has a weight: of ``bias + x * w`` the bias counts twice, x and w once. And of each result the degree, from 1 to
    3, as two runs on plain numbers show it; where a result is of no such degree, all the operands, and None. The runs
    differ by powers of two, so the comparison is exact. ``known`` keeps what no number of the operands decides.
    """
    leaves = tree_flatten((args, kwargs))[0]
    operands = [index for index, leaf in enumerate(leaves) if movable(leaf)]
    key = (homogeneous_operands, func, *map(_outline, leaves))
    if key in known:
        return known[key]
    equal = dict.fromkeys(operands, 1)
    choices = [equal, *(equal | {index: 2} for index in operands), *({index: 1} for index in operands)]
    for chosen in choices if len(operands) > 1 else [equal]:
        runs = [
            tree_flatten(func(*given, **named))[0]
            for given, named in (
                replace_leaves(lambda leaf, weight: distinct_numbers(leaf), args, kwargs, chosen),
                replace_leaves(lambda leaf, weight: shifted(distinct_numbers(leaf), -weight), args, kwargs, chosen),
            )
        ]
        found = [_degree(*pair) for pair in zip(*runs, strict=True)]
        if None not in found:
            degrees = [degree for degree in found if degree is not None]
            if len(chosen) == sum(isinstance(leaf, Tensor) for leaf in leaves):
                known[key] = chosen, degrees
            return chosen, degrees
    return equal, None


def _outline(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else (type(leaf), str(leaf))


def replace_leaves(
    change: Callable[[Any, int], Any], args: Any, kwargs: dict[str, Any], chosen: dict[int, int]
) -> tuple[Any, Any]:
    """``args`` and ``kwargs`` with the leaves that are ``chosen`` changed, given each with its weight."""
    leaves, spec = tree_flatten((args, kwargs))
    changed = [change(leaf, chosen[index]) if index in chosen else leaf for index, leaf in enumerate(leaves)]
    return tree_unflatten(changed, spec)


def distinct_numbers(leaf: Any) -> Any:
    """Positive numbers from 1 to 2, no two the same, in place of a tensor's: none that an argument of the program may
    cancel or be a pole at, such as a variance of 1 beside ``eps=-1``."""
    if not movable(leaf):
        return leaf
    steps = torch.arange(leaf.numel(), dtype=torch.float64).reshape(leaf.shape) + GOLDEN_RATIO
    values = 1.0 + steps / max(leaf.numel(), 1)
    return values.to(leaf.dtype)


def _degree(whole: Any, half: Any) -> int | None:
    if not movable(whole):
        return 1
    for degree in (1, 2, 3):
        if bool(same_numbers(shifted(half, degree), whole).all()) and (
            not whole.numel() or bool(torch.isfinite(whole).any())
        ):
            return degree
    return None


class FusedProducts:
    """Products that exceed float64's range and are fused into the next addition, each element as a coin falls."""

    def __init__(self) -> None:
        self._kept: Any = WeakIdKeyDictionary()

    def keep(self, args: Any, out: Any, fused: Tensor) -> None:
        """``out`` is the product of ``args``: keep what it is where it is ``fused``."""
        left, right = (leaf if isinstance(leaf, Tensor) else torch.tensor(leaf, dtype=out.dtype) for leaf in args)
        if bool((fused & torch.isinf(out)).any()):
            plain = shifted(out, -2 * SHIFT)
            self._kept[out] = torch.where(fused, unless_nan(shifted(left) * shifted(right), plain), plain)

    def add(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """``out``, which ``func`` gave by adding ``args``, as it is where a fused product was among them."""
        if not any(isinstance(leaf, Tensor) and leaf in self._kept for leaf in args):
            return out
        return restored(out, func(*map(self._wide, args), **kwargs), 2)

    def _wide(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf in self._kept:
            return self._kept[leaf]
        return shifted(leaf, -2 * SHIFT) if isinstance(leaf, Tensor) else math.ldexp(leaf, -2 * SHIFT)
