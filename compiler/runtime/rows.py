"""Loop nests one after the other become one loop over blocks of rows: what one writes, the next finds in the cache.

    for all rows: t = exp(x)          for each block of rows:
    for all rows: s = sum(t)    ->        t = exp(x); s = sum(t); y = t / s
    for all rows: y = t / s

Works on linalg ops over buffers of known sizes, where each nest's outermost loop runs over rows and no nest needs other
rows of what another one writes. A buffer that lives in the block alone becomes as small as the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from torchstone.compiler.runtime.mlir import Bindings
from torchstone.compiler.runtime.prefetch import Ahead

# Elements of the widest buffer in a block, if it has no wider rows: a few such buffers stay in the first cache.
BLOCK = 1024
_LINE = 64
_VIEWS = frozenset({"memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast"})
_PASSED = frozenset({"memref.alloc", "arith.constant"})


@dataclass
class _Nest:
    """A linalg op: the operands, the dim of each that is the row (None: none), and which are written."""

    op: Any
    rows: int
    operands: list[Any]
    dims: list[int | None]
    outputs: range


def fuse_rows(module: Any, provider: Bindings) -> None:
    """Fuse what can be, in the functions of a module and in place."""
    for function in module.body.operations:
        if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
            continue
        group: list[_Nest] = []
        for op in list(function.operation.regions[0].blocks[0].operations):
            if op.operation.name in _PASSED:
                continue
            nest = _nest(op.operation, provider)
            if group and nest is None and _apart(op.operation, group):
                continue
            if group and (nest is None or nest.rows != group[0].rows or not all(_fit(n, nest) for n in group)):
                _fuse(group, provider)
                group = []
            if nest is not None:
                group.append(nest)
        _fuse(group, provider)


def _nest(op: Any, provider: Bindings) -> _Nest | None:
    ir = provider.ir
    operands = list(op.operands)
    if any(isinstance(v.type, ir.MemRefType) and not v.type.has_static_shape for v in operands):
        return None
    if op.name == "linalg.fill":
        shape = operands[1].type.shape
        return _Nest(op, shape[0], operands, [None, 0], range(1, 2)) if shape else None
    if op.name != "linalg.generic" or not op.attributes["iterator_types"]:
        return None
    if "parallel" not in str(op.attributes["iterator_types"][0]):
        return None
    if any(inner.operation.name == "linalg.index" for inner in op.regions[0].blocks[0].operations):
        return None
    rows: int | None = None
    dims: list[int | None] = []
    for operand, attribute in zip(operands, op.attributes["indexing_maps"], strict=True):
        where = [d for d, r in enumerate(attribute.value.results) if re.search(r"\bd0\b", str(r))]
        if len(where) > 1 or any(str(attribute.value.results[d]) != "d0" for d in where):
            return None
        dims.append(where[0] if where else None)
        rows = operand.type.shape[where[0]] if where else rows
    outputs = range(op.attributes["operandSegmentSizes"][0], len(operands))
    return None if rows is None else _Nest(op, rows, operands, dims, outputs)


def _fit(one: _Nest, other: _Nest) -> bool:
    """Say whether each nest needs of what the other one writes its own rows only, read as the same buffer."""
    for a, b in ((one, other), (other, one)):
        for i in a.outputs:
            for j, operand in enumerate(b.operands):
                if _root(operand) == _root(a.operands[i]) and not (
                    operand == a.operands[i] and a.dims[i] == b.dims[j] == 0
                ):
                    return False
    return True


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


def _fuse(group: list[_Nest], provider: Bindings) -> None:
    if sum(nest.op.name == "linalg.generic" for nest in group) < 2:
        return
    ir = provider.ir
    rows = group[0].rows
    width = max(prod(nest.operands[i].type.shape[1:]) for nest in group for i in nest.outputs)
    block = next(n for n in range(max(1, min(rows, BLOCK // max(1, width))), 0, -1) if rows % n == 0)
    last = group[-1].op
    with last.context, last.location, ir.InsertionPoint(last):
        index = ir.IndexType.get()
        low, high, step = (provider.arith.ConstantOp(index, n).result for n in (0, rows, block))
        small = _small(group, block, provider)
        ahead = Ahead(_read(group), rows, block, provider)
        loop = provider.scf.ForOp(low, high, step)
        with ir.InsertionPoint(loop.body):
            parts: list[tuple[Any, int, Any]] = []

            def part(value: Any, dim: int | None) -> Any:
                if dim is None:
                    return value
                for old, new in small:
                    if old == value:
                        return new
                for old, at, new in parts:
                    if old == value and at == dim:
                        return new
                parts.append((value, dim, _block(value, dim, block, loop.induction_variable, provider)))
                return parts[-1][2]

            for number, nest in enumerate(group):
                ahead.fetch(loop.induction_variable, number, len(group))
                operands = [part(v, d) for v, d in zip(nest.operands, nest.dims, strict=True)]
                clone = nest.op.clone()
                for i, operand in enumerate(operands):
                    clone.operation.operands[i] = operand
            provider.scf.YieldOp([])
    for nest in reversed(group):
        nest.op.erase()
    for old, _ in small:
        old.owner.operation.erase()


def _read(group: list[_Nest]) -> list[Any]:
    """Return the buffers that are read by rows and that nothing in the group writes."""
    written = [_root(nest.operands[i]) for nest in group for i in nest.outputs]
    out: list[Any] = []
    for nest in group:
        for value, dim in zip(nest.operands, nest.dims, strict=True):
            if dim == 0 and value not in out and _root(value) not in written:
                out.append(value)
    return out


def _small(group: list[_Nest], block: int, provider: Bindings) -> list[tuple[Any, Any]]:
    """Allocate a block's worth for each buffer that is allocated for the group alone; return pairs of old and new."""
    out: list[tuple[Any, Any]] = []
    ops = [nest.op for nest in group]
    for value in (nest.operands[i] for nest in group for i in nest.outputs):
        owner = getattr(value.owner, "operation", None)
        if owner is None or owner.name != "memref.alloc" or any(old == value for old, _ in out):
            continue
        if all(any(use.owner.operation == op for op in ops) for use in value.uses):
            kind = provider.ir.MemRefType.get([block, *value.type.shape[1:]], value.type.element_type)
            allocate = provider.memref.AllocaOp if block * prod(value.type.shape[1:]) == 1 else provider.memref.AllocOp
            out.append((value, allocate(kind, [], [], alignment=_LINE).result))
    return out


def _block(value: Any, dim: int, block: int, start: Any, provider: Bindings) -> Any:
    """Return the view of a block of rows of a buffer."""
    ir = provider.ir
    kind = value.type
    shape = list(kind.shape)
    strides, _ = kind.get_strides_and_offset()
    sizes = [block if d == dim else n for d, n in enumerate(shape)]
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    layout = ir.StridedLayoutAttr.get(dynamic, strides)
    result = ir.MemRefType.get(sizes, kind.element_type, layout)
    offsets = [ir.ShapedType.get_dynamic_size() if d == dim else 0 for d in range(len(shape))]
    return provider.memref.SubViewOp(result, value, [start], [], [], offsets, sizes, [1] * len(shape)).result
