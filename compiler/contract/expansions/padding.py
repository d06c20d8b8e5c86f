"""Gradients of padding by border elements: each goes back to the element that was repeated."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.contract.expansions.blending import blend, transposed
from torchstone.compiler.contract.expansions.pooling import zeros
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value


@expands(
    "aten.replication_pad1d_backward.default", "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default",
)  # fmt: skip
def replication_pad_backward(b: Expander, grad: Value, x: Value, padding: Sequence[int]) -> tuple[Value, ...]:
    """Padding is given for the last dim first, before and after; a negative one cuts."""
    if 0 in x.shape or 0 in grad.shape:
        return zeros(b)
    out = b.cast(grad, opmath(grad.dtype))
    for axis, before in enumerate(padding[::2]):
        dim = x.rank - 1 - axis
        size, count = x.shape[dim], grad.shape[dim]
        if not isinstance(size, int) or not isinstance(count, int):
            raise b.unsupported("a run-time size")
        rows = [[(min(max(i - before, 0), size - 1), 1.0)] for i in range(count)]
        out = blend(b, out, dim, transposed(rows, size))
    return (b.cast(out, b.type.dtype),)
