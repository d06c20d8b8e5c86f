"""Primitives that only say where an element is read: their result is never stored, a loop reads through them.

An index is one component a dim: ``(loop, scale, offset)`` stands for ``loop * scale + offset``; a fixed position has
no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dims import Dim

Component: TypeAlias = tuple[int | None, int, int]
Index: TypeAlias = tuple[Component, ...]
FIRST: Component = (None, 0, 0)


def loops(rank: int) -> Index:
    """Return the index that visits every element of a tensor of that rank, one loop a dim."""
    return tuple((d, 1, 0) for d in range(rank))


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
        loop, scale, offset = index[d]
        source[d] = (loop, -scale, int(x.shape[d]) - 1 - offset)
    return tuple(source)


def _reshape(op: Operation, index: Index) -> Index:
    (x,) = op.values
    kept = iter(c for c, size in zip(index, op.attributes["shape"], strict=True) if size != 1)
    return tuple(FIRST if size == 1 else next(kept) for size in x.shape)


VIEWS: Mapping[str, Callable[[Operation, Index], Index]] = {
    "flat.broadcast": _broadcast,
    "flat.transpose": _transpose,
    "flat.reverse": _reverse,
    "flat.reshape": _reshape,
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
    return op.name == "flat.broadcast" and _without_ones(op.result.shape) != _without_ones(next(op.values).shape)
