"""Max unpooling: each element goes to its place in the flattened plane; the rest is zeros."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value, product
from torchstone.compiler.transforms.expansions.indexing.index import checked, places, zeros
from torchstone.compiler.transforms.expansions.indexing.scatter import write
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(b: Expander, x: Value, indices: Value, *_: Any) -> Value:
    """A place out of the plane is an error, never a place in the next plane."""
    space = int(b.op.name[len("aten.max_unpool")])
    shape = b.type.dims
    lead, size = shape[: len(shape) - space], product(shape[len(shape) - space :])
    if 0 in x.shape:
        return zeros(b, shape, x.dtype)
    rows = (product(lead), product(x.shape[x.rank - space :]))
    index = checked(b, b.reshape(indices, rows), size, f"a max index outside the output volume of {size} elements")
    into = zeros(b, (rows[0], size), x.dtype)
    return b.reshape(write(b, into, b.reshape(x, rows), places(b, index, 1), [0, 1], "set"), shape)
