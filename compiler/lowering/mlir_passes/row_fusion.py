"""Loop nests one after the other become one loop over blocks of rows: what one writes, the next finds in the cache.

    for all rows: t = exp(x)          for each block of rows:
    for all rows: s = sum(t)    ->        t = exp(x); s = sum(t); y = t / s
    for all rows: y = t / s

Works on linalg ops over buffers of known sizes, where each nest's outermost loops run over rows and no nest needs other
rows of what another one writes. So many loops are shared that a row stays in the cache: one over the rows of a matrix,
three over those of each head in a batch. A buffer that lives in the block alone becomes as small as the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from torchstone.compiler.lowering.mlir_passes.prefetch import Ahead
from torchstone.compiler.mlir import Bindings

# Elements of the widest buffer in a block, if it has no wider rows: a few such buffers stay in the first cache.
BLOCK = 1024
# Elements of a row that leave the second cache.
WIDE = 1 << 16
_LINE = 64
_VIEWS = frozenset({"memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast"})
_PASSED = frozenset({"memref.alloc", "arith.constant"})


@dataclass
class _Nest:
    """A linalg op: the sizes of its outermost loops, the dim of each operand that is each of them, what is written.

    A dim is None where the operand has none, or where there is one row alone.
    """

    op: Any
    sizes: list[int]
    operands: list[Any]
    dims: list[list[int | None]]
    outputs: range

    def elements(self) -> int:
        return max(prod(self.operands[i].type.shape) for i in self.outputs)


class _Group:
    """Nests of which each needs no other rows of what another one writes, rows being of at most ``most`` loops."""

    def __init__(self, nest: _Nest) -> None:
        self.nests = [nest]
        self.most, self.elements = len(nest.sizes), nest.elements()

    def add(self, nest: _Nest) -> bool:
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


def fuse_rows(module: Any, provider: Bindings) -> None:
    """Fuse what can be, in the functions of a module and in place."""
    for function in module.body.operations:
        if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
            continue
        group: _Group | None = None
        for op in list(function.operation.regions[0].blocks[0].operations):
            if op.operation.name in _PASSED:
                continue
            nest = _nest(op.operation, provider)
            if group and (group.add(nest) if nest else _apart(op.operation, group.nests)):
                continue
            if group:
                _fuse(group, provider)
            group = _Group(nest) if nest else None
        if group:
            _fuse(group, provider)


def _nest(op: Any, provider: Bindings) -> _Nest | None:
    ir = provider.ir
    operands = list(op.operands)
    if any(isinstance(v.type, ir.MemRefType) and not v.type.has_static_shape for v in operands):
        return None
    if op.name == "linalg.fill":
        sizes = list(operands[1].type.shape)
        dims = [[None] * len(sizes), [None if n == 1 else d for d, n in enumerate(sizes)]]
        return _Nest(op, sizes, operands, dims, range(1, 2)) if sizes and prod(sizes) else None
    if op.name != "linalg.generic":
        return None
    if any(inner.operation.name == "linalg.index" for inner in op.regions[0].blocks[0].operations):
        return None
    maps = [[str(result) for result in attribute.value.results] for attribute in op.attributes["indexing_maps"]]
    sizes: list[int] = []
    dims: list[list[int | None]] = [[] for _ in operands]
    for loop, kind in enumerate(op.attributes["iterator_types"]):
        where = [[d for d, result in enumerate(results) if re.search(rf"\bd{loop}\b", result)] for results in maps]
        alone = all(len(at) <= 1 and all(r[d] == f"d{loop}" for d in at) for r, at in zip(maps, where, strict=True))
        size = next((v.type.shape[at[0]] for v, at in zip(operands, where, strict=True) if at), 0)
        if "parallel" not in str(kind) or not alone or not size:
            break
        sizes.append(size)
        for mine, at in zip(dims, where, strict=True):
            mine.append(at[0] if at and size > 1 else None)
    outputs = range(op.attributes["operandSegmentSizes"][0], len(operands))
    return _Nest(op, sizes, operands, dims, outputs) if sizes else None


def _shared(one: _Nest, other: _Nest) -> int:
    """Return over how many loops each nest needs its own rows only of what the other one writes, as the same buffer."""
    most = next((d for d, (m, n) in enumerate(zip(one.sizes, other.sizes, strict=False)) if m != n), None)
    most = min(len(one.sizes), len(other.sizes)) if most is None else most
    for a, b in ((one, other), (other, one)):
        for i in a.outputs:
            for j, operand in enumerate(b.operands):
                if _root(operand) != _root(a.operands[i]):
                    continue
                if operand != a.operands[i]:
                    return 0
                mine = (n == 1 or a.dims[i][d] == b.dims[j][d] == d for d, n in enumerate(one.sizes[:most]))
                most = next((d for d, fits in enumerate(mine) if not fits), most)
    return most


def _apart(op: Any, group: list[_Nest]) -> bool:
    """Say whether an op may run before the group: it is a loop nest over other buffers."""
    mine = [_root(value) for value in op.operands]
    return op.name.startswith("linalg.") and not any(
        _root(value) == root for nest in group for value in nest.operands for root in mine
    )


def _root(value: Any) -> Any:
    """Return the buffer that a view is part of."""
    owner = value.owner
    while hasattr(owner, "operation") and owner.operation.name in _VIEWS:
        value = owner.operation.operands[0]
        owner = value.owner
    return value


def _fuse(group: _Group, provider: Bindings) -> None:
    nests = group.nests
    if sum(nest.op.name == "linalg.generic" for nest in nests) < 2:
        return
    ir, arith = provider.ir, provider.arith
    sizes = nests[0].sizes[: group.depth(group.most, group.elements)]
    width = max(1, group.elements // prod(sizes))
    block = next(n for n in range(max(1, min(sizes[-1], BLOCK // width)), 0, -1) if sizes[-1] % n == 0)
    steps = [*[1] * (len(sizes) - 1), block]
    last = nests[-1].op
    with last.context, last.location, ir.InsertionPoint(last):
        small = _small(nests, sizes, steps, provider)
        ahead = Ahead(_read(nests, sizes), prod(sizes), block, provider)

        def number(n: int) -> Any:
            return arith.ConstantOp(ir.IndexType.get(), n).result

        def loops(at: list[Any], row: Any) -> None:
            """Go over the loops from where each so far is at, which is the number of a row, counted in the next."""
            if len(at) == len(sizes):
                return body(at, row)
            size, step = sizes[len(at)], steps[len(at)]
            loop = provider.scf.ForOp(number(0), number(size), number(step))
            with ir.InsertionPoint(loop.body):
                here = loop.induction_variable
                loops([*at, here], arith.addi(arith.muli(row, number(size)), here) if at else here)
                provider.scf.YieldOp([])
            return None

        def body(at: list[Any], row: Any) -> None:
            parts: list[tuple[Any, Any, Any]] = []

            def part(value: Any, dims: list[int | None]) -> Any:
                dims = dims[: len(sizes)]
                for old, new in small:
                    if old == value:
                        return new
                for old, known, new in parts:
                    if old == value and known == dims:
                        return new
                new = _block(value, dims, steps, at, provider)
                parts.append((value, dims, new))
                return new

            for count, nest in enumerate(nests):
                ahead.fetch(row, count, len(nests))
                operands = [part(v, d) for v, d in zip(nest.operands, nest.dims, strict=True)]
                clone = nest.op.clone()
                for i, operand in enumerate(operands):
                    clone.operation.operands[i] = operand

        loops([], None)
    for nest in reversed(nests):
        nest.op.erase()
    for old, _ in small:
        old.owner.operation.erase()


def _read(nests: list[_Nest], sizes: list[int]) -> list[Any]:
    """Return the buffers that are read by rows, one after the other, and that no nest writes."""
    written = [_root(nest.operands[i]) for nest in nests for i in nest.outputs]
    own = [None if n == 1 else d for d, n in enumerate(sizes)]
    out: list[Any] = []
    for nest in nests:
        for value, dims in zip(nest.operands, nest.dims, strict=True):
            if dims[: len(sizes)] == own and prod(sizes) > 1 and value not in out and _root(value) not in written:
                out.append(value)
    return out


def _small(nests: list[_Nest], sizes: list[int], steps: list[int], provider: Bindings) -> list[tuple[Any, Any]]:
    """Allocate a block's worth for each buffer that is allocated for the nests alone; return pairs of old and new."""
    out: list[tuple[Any, Any]] = []
    ops = [nest.op for nest in nests]
    own = [None if n == 1 else d for d, n in enumerate(sizes)]
    for value, dims in ((nest.operands[i], nest.dims[i]) for nest in nests for i in nest.outputs):
        owner = getattr(value.owner, "operation", None)
        if owner is None or owner.name != "memref.alloc" or any(old == value for old, _ in out):
            continue
        if dims[: len(sizes)] == own and all(any(use.owner.operation == op for op in ops) for use in value.uses):
            shape = [steps[d] if d in own else n for d, n in enumerate(value.type.shape)]
            kind = provider.ir.MemRefType.get(shape, value.type.element_type)
            allocate = provider.memref.AllocaOp if prod(shape) == 1 else provider.memref.AllocOp
            out.append((value, allocate(kind, [], [], alignment=_LINE).result))
    return out


def _block(value: Any, dims: list[int | None], steps: list[int], at: list[Any], provider: Bindings) -> Any:
    """Return the view of a block of rows of a buffer."""
    ir = provider.ir
    where = {dim: loop for loop, dim in enumerate(dims) if dim is not None}
    if not where:
        return value
    kind = value.type
    shape = list(kind.shape)
    strides, _ = kind.get_strides_and_offset()
    sizes = [steps[where[d]] if d in where else n for d, n in enumerate(shape)]
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    layout = ir.StridedLayoutAttr.get(dynamic, strides)
    result = ir.MemRefType.get(sizes, kind.element_type, layout)
    offsets = [ir.ShapedType.get_dynamic_size() if d in where else 0 for d in range(len(shape))]
    starts = [at[where[d]] for d in sorted(where)]
    return provider.memref.SubViewOp(result, value, starts, [], [], offsets, sizes, [1] * len(shape)).result
