"""Primitives that only say where an element is read: their result is never stored, a loop reads through them.

An index is one component a dim, each an affine sum of the loops around: windows that slide over the rows of an image
are read at ``stride * row + dilation * row of the window``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dims import Dim


@dataclass(frozen=True, slots=True)
class Component:
    """The sum of loop * scale over ``terms``, loops in increasing order, and ``offset``."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0

    @property
    def loop(self) -> int | None:
        """The loop that this is and nothing else, or None."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.offset else None

    def __add__(self, other: Component | int) -> Component:
        if isinstance(other, int):
            return Component(self.terms, self.offset + other)
        scales = dict(self.terms)
        for loop, scale in other.terms:
            scales[loop] = scales.get(loop, 0) + scale
        return Component(tuple(sorted((d, s) for d, s in scales.items() if s)), self.offset + other.offset)

    def __mul__(self, scale: int) -> Component:
        return Component(tuple((d, s * scale) for d, s in self.terms), self.offset * scale)


Index: TypeAlias = tuple[Component, ...]
FIRST = Component()


def loop(number: int) -> Component:
    """Return the component that is one loop."""
    return Component(((number, 1),))


@cache
def loops(rank: int) -> Index:
    """Return the index that visits every element of a tensor of that rank, one loop a dim."""
    return tuple(loop(d) for d in range(rank))


def _broadcast(op: Operation, index: Index) -> Index:
    (x,) = op.values
    shape = op.attributes["shape"]
    return tuple(
        FIRST if size == 1 and shape[dim] != 1 else index[dim]
        for size, dim in zip(x.shape, op.attributes["dims"], strict=True)
    )


def _transpose(op: Operation, index: Index) -> Index:
    source: list[Component] = [FIRST] * len(index)
    for position, dim in enumerate(op.attributes["permutation"]):
        source[dim] = index[position]
    return tuple(source)


def _reverse(op: Operation, index: Index) -> Index:
    (x,) = op.values
    source = list(index)
    for d in op.attributes["dims"]:
        source[d] = index[d] * -1 + (int(x.shape[d]) - 1)
    return tuple(source)


def _reshape(op: Operation, index: Index) -> Index:
    (x,) = op.values
    kept = iter(c for c, size in zip(index, op.attributes["shape"], strict=True) if size != 1)
    return tuple(FIRST if size == 1 else next(kept) for size in x.shape)


def _windows(op: Operation, index: Index) -> Index:
    (x,) = op.values
    at, inside = list(index[: x.rank]), index[x.rank :]
    names = ("dims", "stride", "dilation")
    for d, stride, dilation, place in zip(*(op.attributes[name] for name in names), inside, strict=True):
        at[d] = at[d] * stride + place * dilation
    return tuple(at)


VIEWS: Mapping[str, Callable[[Operation, Index], Index]] = {
    "flat.broadcast": _broadcast,
    "flat.transpose": _transpose,
    "flat.reverse": _reverse,
    "flat.reshape": _reshape,
    "flat.windows": _windows,
}


def _without_ones(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(d for d in shape if d != 1)


def is_view(op: Operation) -> bool:
    """Say whether this operation can be read through: sizes it needs are known, a reshape only moves ones."""
    if op.name == "flat.reverse":
        (x,) = op.values
        return all(isinstance(x.shape[d], int) for d in op.attributes["dims"])
    if op.name == "flat.reshape":
        (x,) = op.values
        return _without_ones(x.shape) == _without_ones(op.attributes["shape"])
    return op.name in VIEWS


def repeats(op: Operation) -> bool:
    """Say whether elements of the operand are read more than once."""
    if op.name == "flat.windows":
        kernel, stride, dilation = (op.attributes[name] for name in ("kernel", "stride", "dilation"))
        return any((k - 1) * apart >= step for k, step, apart in zip(kernel, stride, dilation, strict=True))
    return op.name == "flat.broadcast" and _without_ones(op.result.shape) != _without_ones(next(op.values).shape)
