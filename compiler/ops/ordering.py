"""Primitives whose result at a place depends on the elements before it or on the order of all: scan and sort."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

SCAN_KINDS = ("sum", "prod", "max", "min")


def _scan_infer(x: TensorType, *, kind: str, dim: int) -> tuple[TensorType, ...]:
    check(kind in SCAN_KINDS, "scan", f"kind must be one of {', '.join(SCAN_KINDS)}, got {kind}")
    check(0 <= dim < x.rank, "scan", f"dim {dim} out of range for {x}")
    check(not x.dtype.is_bool, "scan", f"takes numbers, got {x}")
    check(kind in ("sum", "prod") or not x.dtype.is_complex, "scan", f"{kind} takes no complex, got {x}")
    return (x,)


def _scan(x: Any, *, kind: str, dim: int) -> Any:
    import torch

    if x.numel() == 0:
        return x.clone()
    wide = torch.float32 if x.is_floating_point() and x.element_size() == 1 else x.dtype
    if kind in ("max", "min"):
        return (torch.cummax if kind == "max" else torch.cummin)(x.to(wide), dim).values.to(x.dtype)
    return (torch.cumsum if kind == "sum" else torch.cumprod)(x.to(wide), dim, dtype=wide).to(x.dtype)


def _sort_infer(x: TensorType, *, dim: int, descending: bool) -> tuple[TensorType, ...]:
    check(0 <= dim < x.rank, "sort", f"dim {dim} out of range for {x}")
    check(not x.dtype.is_complex, "sort", f"complex numbers have no order, got {x}")
    return x, TensorType(x.shape, dt.int64)


def _sort(x: Any, *, dim: int, descending: bool) -> Any:
    import torch

    return tuple(torch.sort(x, dim=dim, descending=descending, stable=True))


ROWS = (
    Primitive(
        "scan",
        "Each element combined with all before it along dim. A NaN stays from where it appears on. 16-bit floats "
        "accumulate in float32; integers wrap.",
        1, _scan_infer, _scan, ("kind", "dim"),
    ),
    Primitive(
        "sort",
        "The elements in order along dim, and where each was. Stable; NaN is the largest of all, so it comes first "
        "when descending; -0 and 0 are equal.",
        1, _sort_infer, _sort, ("dim", "descending"),
    ),
)  # fmt: skip
