"""Loop nests one after the other become one loop over blocks of rows: what one writes, the next finds in the cache.

    for all rows: t = exp(x)          for each block of rows:
    for all rows: s = sum(t)    ->        t = exp(x); s = sum(t); y = t / s
    for all rows: y = t / s

Works on linalg ops over buffers of known sizes, where each nest's outermost loops run over rows and no nest needs other
rows of what another one writes. So many loops are shared that a row stays in the cache: one over the rows of a matrix,
three over those of each head in a batch. A buffer that lives in the block alone becomes as small as the block.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torchstone.compiler.lowering.mlir_passes.prefetch import Ahead
from torchstone.compiler.lowering.mlir_passes.row_nests import RowGroup, RowNest, is_apart, root_buffer, row_nest
from torchstone.compiler.mlir import Bindings

_LINE = 64
_PASSED = frozenset({"memref.alloc", "arith.constant"})


def fuse_rows(module: Any, provider: Bindings) -> None:
    """Fuse what can be, in the functions of a module and in place."""
    for function in module.body.operations:
        if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
            continue
        group: RowGroup | None = None
        for op in list(function.operation.regions[0].blocks[0].operations):
            if op.operation.name in _PASSED:
                continue
            nest = row_nest(op.operation, provider)
            if group and (group.add(nest) if nest else is_apart(op.operation, group.nests)):
                continue
            if group:
                _fuse(group, provider)
            group = RowGroup(nest) if nest else None
        if group:
            _fuse(group, provider)


def _fuse(group: RowGroup, provider: Bindings) -> None:
    nests = group.nests
    if sum(nest.op.name == "linalg.generic" for nest in nests) < 2:
        return
    ir, arith = provider.ir, provider.arith
    sizes, steps = group.loops()
    last = nests[-1].op
    with last.context, last.location, ir.InsertionPoint(last):
        small = _small(nests, sizes, steps, provider)
        ahead = Ahead(_read(nests, sizes), prod(sizes), steps[-1], provider)

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


def _read(nests: list[RowNest], sizes: list[int]) -> list[Any]:
    """Return the buffers that are read by rows, one after the other, and that no nest writes."""
    written = [root_buffer(nest.operands[i]) for nest in nests for i in nest.outputs]
    own = [None if n == 1 else d for d, n in enumerate(sizes)]
    out: list[Any] = []
    for nest in nests:
        for value, dims in zip(nest.operands, nest.dims, strict=True):
            if dims[: len(sizes)] == own and prod(sizes) > 1 and value not in out and root_buffer(value) not in written:
                out.append(value)
    return out


def _small(nests: list[RowNest], sizes: list[int], steps: list[int], provider: Bindings) -> list[tuple[Any, Any]]:
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
