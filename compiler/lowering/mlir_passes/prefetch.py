"""What the next iteration of a loop over blocks of rows will read is fetched into the cache while this one computes.

The first nest of a block would wait for memory, the others would leave it idle; so each of them asks for its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torchstone.compiler.mlir import Bindings

LINE = 64
# Bytes of a block that are worth the instructions, and that leave room in the first cache for what is computed.
LEAST, MOST = 1 << 10, 1 << 14


class Ahead:
    """The blocks after the one that loops are at, of the buffers that they read; made before the loops."""

    def __init__(self, buffers: Sequence[Any], rows: int, block: int, provider: Bindings) -> None:
        self.provider, self.rows, self.block = provider, rows, block
        self._flat = [(_flat(v, provider), v.type) for v in buffers if self._pays(v.type)] if rows > block else []

    def _pays(self, kind: Any) -> bool:
        if not isinstance(kind.layout, self.provider.ir.AffineMapAttr):
            return False
        bits = getattr(kind.element_type, "width", 0)  # a complex number has none
        return LEAST <= self.block * self._width(kind) * bits // 8 <= MOST

    def _width(self, kind: Any) -> int:
        return prod(kind.shape) // self.rows

    def fetch(self, row: Any, part: int, parts: int) -> None:
        """Ask for one of equal parts of the block behind the one that begins at a row; the last one has none behind."""
        arith, index = self.provider.arith, self.provider.ir.IndexType.get()

        def number(n: int) -> Any:
            return arith.ConstantOp(index, n).result

        for flat, kind in self._flat:
            width = self._width(kind)
            line = LINE * 8 // kind.element_type.width
            lines = -(-self.block * width // line)
            first, end = (line * (lines * n // parts) for n in (part, part + 1))
            if first == end:
                continue
            following = arith.minsi(arith.addi(row, number(self.block)), number(self.rows - self.block))
            start = arith.muli(following, number(width))
            loop = self.provider.scf.ForOp(number(first), number(end), number(line))
            with self.provider.ir.InsertionPoint(loop.body):
                at = arith.addi(start, loop.induction_variable)
                self.provider.memref.PrefetchOp(flat, [at], False, 3, True)
                self.provider.scf.YieldOp([])


def _flat(value: Any, provider: Bindings) -> Any:
    """Return a contiguous buffer as one of a single dim."""
    ir, rank = provider.ir, value.type.rank
    if rank == 1:
        return value
    kind = ir.MemRefType.get([prod(value.type.shape)], value.type.element_type)
    i64 = ir.IntegerType.get_signless(64)
    together = ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in range(rank)])])
    return provider.memref.CollapseShapeOp(kind, value, together).result
