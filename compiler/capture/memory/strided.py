"""``as_strided`` reads and writes memory, which no graph has: it is recorded as what it does to a row-major tensor.

A tensor's elements lie in its memory in row-major order, or the op is refused; ``Captured.row_major`` then says that
the program means this only for arguments that lie in memory as the example's did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler.diagnostics import Unsupported

_AS_STRIDED = frozenset({torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default})
_SCATTER = torch.ops.aten.as_strided_scatter.default
BY_MEMORY = _AS_STRIDED | {_SCATTER}
# Above this many places, it is not looked for two of them that are one.
_MOST_PLACES = 1 << 20


# Dtypes that eager's index_put does not know, and those of as many bits that it does.
_WRITTEN = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def by_place(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """Compute the result of an op in ``BY_MEMORY`` by the places of the elements in the flattened tensor."""
    given = dict(zip((a.name for a in schema_of(func).arguments), args, strict=False)) | kwargs
    x, size, stride = given["self"], given["size"], given["stride"]
    offset = given.get("storage_offset")
    offset = 0 if offset is None else offset
    if any(s < 0 for s in size):
        raise _refused(func, "a negative size")  # eager takes it where another size is 0
    empty = any(s == 0 for s in size)
    last = offset + sum((s - 1) * step for s, step in zip(size, stride, strict=True))
    if not x.is_contiguous() or x.storage_offset() != 0 or not (empty or last < x.numel()):
        raise _refused(func, "memory that is not the tensor's own, in row-major order")
    place = torch.full((), offset, dtype=torch.int64)
    for s, step in zip(size, stride, strict=True):
        place = place.unsqueeze(-1) + torch.arange(s) * step
    if func in _AS_STRIDED:
        chosen = x.reshape(-1)[place.reshape(-1)]  # which knows every dtype, as torch.take does not
        return chosen.reshape(place.shape)
    if _overlap(size, stride):
        raise _refused(func, "places in memory that are one, or cannot be told apart")
    src = given["src"].to(x.dtype)  # eager copies it there, which converts; index_put does not
    flat, src = x.reshape(-1), src.expand(tuple(size))
    if x.dtype in _WRITTEN:
        flat, src = flat.view(_WRITTEN[x.dtype]), src.view(_WRITTEN[x.dtype])
    written = torch.index_put(flat, (place,), src).reshape(x.shape)
    return written.view(x.dtype) if x.dtype in _WRITTEN else written


def _overlap(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Say whether two elements may be at one place."""
    if not all(isinstance(v, int) for v in (*size, *stride)):
        return True
    places = {0}
    for s, step in zip(size, stride, strict=True):
        count = len(places) * s
        if count > _MOST_PLACES:
            return True
        places = {place + i * step for place in places for i in range(s)}
        if len(places) < count:
            return True
    return False


def _refused(func: Any, why: str) -> Unsupported:
    return Unsupported(f"{func} of {why}", op=str(func), stage="capture")
