"""Primitives that read and write at computed places: gather and scatter."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Shape
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

SCATTER_KINDS = ("set", "add", "mul", "max", "min")


def _places(op: str, x: TensorType, indices: tuple[TensorType, ...], dims: tuple[int, ...]) -> tuple[Shape, Shape]:
    """Return the shape of the indices and the sizes of the dims of ``x`` that no index is for."""
    check(bool(indices), op, "takes at least one index tensor")
    check(len(dims) == len(indices), op, f"{len(indices)} index tensors for dims {list(dims)}")
    check(list(dims) == sorted(set(dims)), op, f"dims {list(dims)} must be strictly increasing")
    check(all(0 <= d < x.rank for d in dims), op, f"dims {list(dims)} out of range for {x}")
    first = indices[0]
    for other in indices:
        check(other.dtype == dt.int64, op, f"indices must be int64, got {other}")
        check(other.shape == first.shape, op, f"index shapes differ, got {first} and {other}")
    return first.dims, tuple(s for d, s in enumerate(x.dims) if d not in dims)


def _gather_infer(x: TensorType, *indices: TensorType, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    chosen, rest = _places("gather", x, indices, dims)
    check(
        0 in chosen or 0 in rest or all(x.shape[d] != 0 for d in dims),
        "gather",
        f"there is nothing to read in {x} along dims {list(dims)}",
    )
    return (TensorType((*chosen, *rest), x.dtype),)


def _gather(x: Any, *indices: Any, dims: tuple[int, ...]) -> Any:
    rest = [d for d in range(x.dim()) if d not in dims]
    inside = [i.clamp(0, max(x.shape[d] - 1, 0)) for i, d in zip(indices, dims, strict=True)]
    if 0 in x.shape:
        return x.new_empty((*indices[0].shape, *(x.shape[d] for d in rest)))
    return x.permute(*dims, *rest)[tuple(inside)].clone()


def _scatter_infer(
    x: TensorType, updates: TensorType, *indices: TensorType, dims: tuple[int, ...], kind: str
) -> tuple[TensorType, ...]:
    check(kind in SCATTER_KINDS, "scatter", f"kind must be one of {', '.join(SCATTER_KINDS)}, got {kind}")
    check(kind == "set" or not x.dtype.is_bool, "scatter", f"{kind} takes numbers, got {x}")
    check(kind not in ("max", "min") or not x.dtype.is_complex, "scatter", f"{kind} takes no complex, got {x}")
    chosen, rest = _places("scatter", x, indices, dims)
    expected = TensorType((*chosen, *rest), x.dtype)
    check(updates == expected, "scatter", f"updates must be {expected}, got {updates}")
    return (x,)


def _scatter(x: Any, updates: Any, *indices: Any, dims: tuple[int, ...], kind: str) -> Any:
    import torch

    rest = [d for d in range(x.dim()) if d not in dims]
    out = x.clone().permute(*dims, *rest)
    count = indices[0].numel()
    flat = updates.reshape(count, *(x.shape[d] for d in rest))
    combine = {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum}.get(kind)
    # One at a time: PyTorch leaves the order of updates to one place open.
    for n, place in enumerate(zip(*(i.reshape(-1).tolist() for i in indices), strict=True)):
        if all(0 <= i < x.shape[d] for i, d in zip(place, dims, strict=True)):
            out[place] = combine(out[place], flat[n]) if combine else flat[n]
    inverse = sorted(range(x.dim()), key=[*dims, *rest].__getitem__)
    return out.permute(inverse).contiguous()


ROWS = (
    Primitive(
        "gather",
        "Element at indices[i] along dims[i], for each place of the index tensors, which have one shape. Result dims: "
        "those of an index tensor, then the dims of x that are not in dims, whole. An index out of range reads the "
        "nearest element: a program that must refuse it says so with flat.check.",
        None, _gather_infer, _gather, ("dims",),
    ),
    Primitive(
        "scatter",
        "x with updates (shaped as gather's result) put at the places that gather would read, in row-major order of "
        "the index tensors: the last one stays for set; add, mul, max (NaN wins) and min combine in the dtype, "
        "rounding at each step. An update out of range is dropped.",
        None, _scatter_infer, _scatter, ("dims", "kind"),
    ),
)  # fmt: skip
