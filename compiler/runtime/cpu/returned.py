"""MLIR memrefs that a kernel hands over -> torch tensors over their memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dtypes import DTYPES
from torchstone.compiler.runtime.cpu.bridge import TORCH_DTYPES

# What a signless MLIR element type is in torch when nobody says which of several it is.
_RESULT_DTYPES: dict[str, torch.dtype] = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "index": torch.int64,
    "ui8": torch.uint8, "si8": torch.int8, "si16": torch.int16, "si32": torch.int32, "si64": torch.int64,
    **{d.mlir: TORCH_DTYPES[d.name] for d in DTYPES if (d.is_float or d.is_complex) and d.name in TORCH_DTYPES},
}  # fmt: skip


def dtype_of_element(element: str) -> torch.dtype:
    """Return the torch dtype of an MLIR element type; a bool is ``i1``, other signless integers are taken as signed."""
    try:
        return _RESULT_DTYPES[element]
    except KeyError:
        raise Unsupported(f"no torch dtype holds an MLIR {element}", stage="compile") from None


def descriptor_struct(rank: int) -> type[ctypes.Structure]:
    """Return the C struct of a memref descriptor of that rank."""
    sizes: list[tuple[str, Any]] = (
        [("shape", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)] if rank else []
    )
    fields = [("allocated", ctypes.c_size_t), ("aligned", ctypes.c_size_t), ("offset", ctypes.c_int64), *sizes]
    return type(f"MemRef{rank}", (ctypes.Structure,), {"_fields_": fields})


class Allocation:
    """Memory that a kernel allocated and handed over; ``release`` runs once, when the last view of it is gone."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, address: int, size: int, release: Callable[[], None]) -> None:
        self.buffer = (ctypes.c_char * size).from_address(address)
        # torch.frombuffer keeps the ctypes array alive, so it is the array's end that frees the memory.
        weakref.finalize(self.buffer, release)


def adopt(
    allocation: Allocation | None, byte_offset: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Return a tensor over memory that a kernel handed over, without a copy; it keeps the allocation alive."""
    if allocation is None or 0 in shape:
        return torch.empty(tuple(shape), dtype=dtype)
    raw = torch.frombuffer(allocation.buffer, dtype=torch.uint8)[byte_offset:]
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    flat = raw[: span * dtype.itemsize].view(dtype)
    return flat.as_strided(tuple(shape), tuple(strides))
