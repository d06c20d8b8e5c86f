"""Which loop nests can share their outermost loops, decided on the affine maps by which they read and write buffers.

A loop goes over rows of an operand where the operand's map has it as one result and in no other: ``d0`` in
``(d0, d1) -> (d0, d1)``, but neither in ``(d0, d1) -> (d0 + d1)``, a window, nor in ``(d0, d1) -> (d0 * 2, d1)``, a
step, nor in ``(d0, d1) -> (d0, d0)``, a diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from torchstone.compiler.mlir import Bindings

# Elements of the widest buffer in a block, if it has no wider rows: a few such buffers stay in the first cache.
BLOCK = 1024
# Elements of a row that leave the second cache.
WIDE = 1 << 16
_VIEWS = frozenset({"memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast"})


@dataclass
class RowNest:
    """A linalg op: the sizes of its outermost loops, the dim of each operand that is each of them, what is written.

    A dim is None where the operand has none, or where there is one row alone. ``captured`` are buffers that the body
    reads by itself, at any place.
    """

    op: Any
    sizes: list[int]
    operands: list[Any]
    dims: list[list[int | None]]
    outputs: range
    captured: list[Any] = field(default_factory=list)

    def elements(self) -> int:
        return max(prod(self.operands[i].type.shape) for i in self.outputs)


class RowGroup:
    """Nests of which each needs no other rows of what another one writes, rows being of at most ``most`` loops."""

    def __init__(self, nest: RowNest) -> None:
        self.nests = [nest]
        self.most, self.elements = len(nest.sizes), nest.elements()

    def add(self, nest: RowNest) -> bool:
        """Take a nest in, unless it shares no loop with the others or rows would leave the cache for it."""
        most = min(self.most, *(_shared(one, nest) for one in self.nests))
        elements = max(self.elements, nest.elements())
        depth = self.depth(most, elements)
        if depth < self.depth(self.most, self.elements) and elements // prod(nest.sizes[:depth]) >= WIDE:
            return False
        if most:
            self.nests.append(nest)
            self.most, self.elements = most, elements
        return most > 0

    def depth(self, most: int, elements: int) -> int:
        """Return how many loops to share: as many as make rows fit into a block, or all."""
        sizes = self.nests[0].sizes
        return next((d for d in range(1, most) if elements <= BLOCK * prod(sizes[:d])), most)

    def loops(self) -> tuple[list[int], list[int]]:
        """Return the sizes of the loops to share, and the steps: the last one goes over blocks of rows."""
        sizes = self.nests[0].sizes[: self.depth(self.most, self.elements)]
        width = max(1, self.elements // prod(sizes))
        block = next(n for n in range(max(1, min(sizes[-1], BLOCK // width)), 0, -1) if sizes[-1] % n == 0)
        return sizes, [*[1] * (len(sizes) - 1), block]


def row_nest(op: Any, provider: Bindings) -> RowNest | None:
    """Return the loop nest that an op is, None where it has no outermost loop over rows of all its operands."""
    ir = provider.ir
    operands = list(op.operands)
    if any(isinstance(v.type, ir.MemRefType) and not v.type.has_static_shape for v in operands):
        return None
    if op.name == "linalg.fill":
        sizes = list(operands[1].type.shape)
        dims = [[None] * len(sizes), [None if n == 1 else d for d, n in enumerate(sizes)]]
        return RowNest(op, sizes, operands, dims, range(1, 2)) if sizes and prod(sizes) else None
    if op.name != "linalg.generic":
        return None
    if any(inner.operation.name == "linalg.index" for inner in op.regions[0].blocks[0].operations):
        return None
    maps = [list(attribute.value.results) for attribute in op.attributes["indexing_maps"]]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", op.context)
    sizes: list[int] = []
    dims: list[list[int | None]] = [[] for _ in operands]
    for loop, kind in enumerate(op.attributes["iterator_types"]):
        at = [_dims_over(results, loop, ir) for results in maps]
        size = next((v.type.shape[mine[0]] for v, mine in zip(operands, at, strict=True) if mine), 0)
        alone = all(_is_row(results, mine, ir) for results, mine in zip(maps, at, strict=True))
        if kind != parallel or not alone or not size:
            break
        sizes.append(size)
        for known, mine in zip(dims, at, strict=True):
            known.append(mine[0] if mine and size > 1 else None)
    outputs = range(op.attributes["operandSegmentSizes"][0], len(operands))
    return RowNest(op, sizes, operands, dims, outputs, captured_buffers(op)) if sizes and outputs else None


def captured_buffers(op: Any) -> list[Any]:
    """Return the buffers from outside that the regions of an op read or write, other than its operands."""
    found: list[Any] = []
    pending, inside = [op], []
    while pending:
        for region in pending.pop().regions:
            for block in region.blocks:
                inside.extend(inner.operation for inner in block.operations)
                pending.extend(inner.operation for inner in block.operations)
    own = {result for inner in inside for result in inner.results}
    for value in (v for inner in inside for v in inner.operands):
        if str(value.type).startswith("memref<") and value not in own and value not in found:
            found.append(value)
    return found


def loops_in(expression: Any, ir: Any) -> frozenset[int]:
    """Return the numbers of the loops that an affine expression depends on."""
    if isinstance(expression, ir.AffineDimExpr):
        return frozenset({expression.position})
    if isinstance(expression, ir.AffineBinaryExpr):
        return loops_in(expression.lhs, ir) | loops_in(expression.rhs, ir)
    return frozenset()


def _dims_over(results: list[Any], loop: int, ir: Any) -> list[int]:
    """Return the dims of an operand whose index depends on a loop."""
    return [dim for dim, result in enumerate(results) if loop in loops_in(result, ir)]


def _is_row(results: list[Any], dims: list[int], ir: Any) -> bool:
    """Say whether the dims that depend on a loop are none, or one whose index is that loop's and nothing more."""
    return not dims or (len(dims) == 1 and isinstance(results[dims[0]], ir.AffineDimExpr))


def _shared(one: RowNest, other: RowNest) -> int:
    """Return over how many loops each nest needs its own rows only of what the other one writes, as the same buffer."""
    for a, b in ((one, other), (other, one)):
        written = [root_buffer(a.operands[i]) for i in a.outputs]
        if any(root_buffer(value) in written for value in b.captured):
            return 0
    most = next((d for d, (m, n) in enumerate(zip(one.sizes, other.sizes, strict=False)) if m != n), None)
    most = min(len(one.sizes), len(other.sizes)) if most is None else most
    for a, b in ((one, other), (other, one)):
        for i in a.outputs:
            for j, operand in enumerate(b.operands):
                if root_buffer(operand) != root_buffer(a.operands[i]):
                    continue
                if operand != a.operands[i]:
                    return 0
                mine = (n == 1 or a.dims[i][d] == b.dims[j][d] == d for d, n in enumerate(one.sizes[:most]))
                most = next((d for d, fits in enumerate(mine) if not fits), most)
    return most


def is_apart(op: Any, group: list[RowNest]) -> bool:
    """Say whether an op may run before the group: it is a loop nest over other buffers."""
    mine = [root_buffer(value) for value in (*op.operands, *captured_buffers(op))]
    return op.name.startswith("linalg.") and not any(
        root_buffer(value) == root for nest in group for value in (*nest.operands, *nest.captured) for root in mine
    )


def root_buffer(value: Any) -> Any:
    """Return the buffer that a view is part of."""
    owner = value.owner
    while hasattr(owner, "operation") and owner.operation.name in _VIEWS:
        value = owner.operation.operands[0]
        owner = value.owner
    return value
