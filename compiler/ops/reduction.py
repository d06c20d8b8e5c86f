"""Primitives that combine many elements into one: reduce, arg_reduce, contract; and the run-time check."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import check_error
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

REDUCE_KINDS = ("sum", "prod", "max", "min", "and", "or")
ARG_KINDS = ("argmax", "argmin")


def _dims(op: str, x: TensorType, dims: tuple[int, ...]) -> None:
    check(list(dims) == sorted(set(dims)), op, f"dims {list(dims)} must be strictly increasing")
    check(all(0 <= d < x.rank for d in dims), op, f"dims {list(dims)} out of range for {x}")


def _reduce_infer(x: TensorType, *, kind: str, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    check(kind in REDUCE_KINDS, "reduce", f"kind must be one of {', '.join(REDUCE_KINDS)}, got {kind}")
    _dims("reduce", x, dims)
    if kind in ("and", "or"):
        check(x.dtype.is_bool, "reduce", f"{kind} takes bool, got {x}")
    else:
        check(not x.dtype.is_bool, "reduce", f"{kind} takes numbers, got {x}")
        check(kind in ("sum", "prod") or not x.dtype.is_complex, "reduce", f"{kind} takes no complex, got {x}")
    if kind in ("max", "min"):
        check(
            all(x.shape[d] != 0 for d in dims),
            "reduce",
            f"{kind} of no elements has no value, got {x} over {list(dims)}",
        )
    return (TensorType(tuple(s for d, s in enumerate(x.shape) if d not in dims), x.dtype),)


def _reduce(x: Any, *, kind: str, dims: tuple[int, ...]) -> Any:
    import torch

    if not dims:
        return x.clone()
    if kind == "sum":
        return torch.sum(x, dims, dtype=x.dtype)
    if kind in ("max", "min"):
        return torch.amax(x, dims) if kind == "max" else torch.amin(x, dims)
    if kind in ("and", "or"):
        return torch.all(x, dims) if kind == "and" else torch.any(x, dims)
    for d in reversed(dims):
        x = torch.prod(x, d, dtype=x.dtype)
    return x


def _arg_reduce_infer(x: TensorType, *, kind: str, dim: int) -> tuple[TensorType, ...]:
    check(kind in ARG_KINDS, "arg_reduce", f"kind must be one of {', '.join(ARG_KINDS)}, got {kind}")
    _dims("arg_reduce", x, (dim,))
    check(x.dtype.is_float or x.dtype.is_int, "arg_reduce", f"takes int or float, got {x}")
    check(x.shape[dim] != 0, "arg_reduce", f"{kind} of no elements has no value, got {x} over dim {dim}")
    return (TensorType((*x.shape[:dim], *x.shape[dim + 1 :]), dt.int64),)


def _arg_reduce(x: Any, *, kind: str, dim: int) -> Any:
    import torch

    best = torch.amax(x, dim, keepdim=True) if kind == "argmax" else torch.amin(x, dim, keepdim=True)
    hit = (x == best) | (x != x)
    return torch.argmax(hit.to(torch.uint8), dim)


def _contract_infer(
    a: TensorType, b: TensorType, *,
    a_batch: tuple[int, ...], b_batch: tuple[int, ...], a_sum: tuple[int, ...], b_sum: tuple[int, ...],
) -> tuple[TensorType, ...]:  # fmt: skip
    check(a.dtype == b.dtype, "contract", f"operand dtypes differ, got {a} and {b}")
    check(not a.dtype.is_bool, "contract", f"takes numbers, got {a}")
    for name, left, right in (("batch", a_batch, b_batch), ("summed", a_sum, b_sum)):
        check(len(left) == len(right), "contract", f"{name} dims must pair up, got {list(left)} and {list(right)}")
        for i, j in zip(left, right, strict=True):
            check(0 <= i < a.rank and 0 <= j < b.rank, "contract", f"{name} dims {i}, {j} out of range for {a} and {b}")
            check(a.shape[i] == b.shape[j], "contract", f"{name} sizes differ, got {a.shape[i]} and {b.shape[j]}")
    for used, t in (((*a_batch, *a_sum), a), ((*b_batch, *b_sum), b)):
        check(len(set(used)) == len(used), "contract", f"a dim of {t} is used twice in {list(used)}")
    free_a = tuple(s for d, s in enumerate(a.shape) if d not in (*a_batch, *a_sum))
    free_b = tuple(s for d, s in enumerate(b.shape) if d not in (*b_batch, *b_sum))
    return (TensorType((*(a.shape[d] for d in a_batch), *free_a, *free_b), a.dtype),)


def _contract(a: Any, b: Any, *, a_batch: Any, b_batch: Any, a_sum: Any, b_sum: Any) -> Any:
    free_a = [d for d in range(a.dim()) if d not in (*a_batch, *a_sum)]
    free_b = [d for d in range(b.dim()) if d not in (*b_batch, *b_sum)]
    batch, rows, cols = [a.shape[d] for d in a_batch], [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    summed = [a.shape[d] for d in a_sum]
    flat = [_count(batch), _count(rows), _count(cols), _count(summed)]
    left = a.permute(*a_batch, *free_a, *a_sum).reshape(flat[0], flat[1], flat[3])
    right = b.permute(*b_batch, *b_sum, *free_b).reshape(flat[0], flat[3], flat[2])
    return left.matmul(right).reshape((*batch, *rows, *cols))


def _count(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _check_infer(predicate: TensorType, *, message: str) -> tuple[TensorType, ...]:
    check(predicate.rank == 0 and predicate.dtype.is_bool, "check", f"takes bool[], got {predicate}")
    return ()


def _check(predicate: Any, *, message: str) -> tuple[()]:
    if not bool(predicate):
        raise check_error(message)
    return ()


ROWS = (
    Primitive(
        "reduce",
        "Combine all elements along dims, which disappear. Empty: 0 for sum, 1 for prod, true for and, false for or. "
        "NaN wins in max and min. 16-bit floats accumulate in float32; integers wrap.",
        1, _reduce_infer, _reduce, ("kind", "dims"),
    ),
    Primitive(
        "arg_reduce", "int64 index along dim of the first largest or smallest element; the first NaN wins over all.",
        1, _arg_reduce_infer, _arg_reduce, ("kind", "dim"),
    ),
    Primitive(
        "contract",
        "Sum of products over the paired dims a_sum and b_sum, for each index of the paired batch dims. Result dims: "
        "batch, the rest of a, the rest of b. An empty sum is 0; 16-bit floats accumulate in float32; integers wrap.",
        2, _contract_infer, _contract, ("a_batch", "b_batch", "a_sum", "b_sum"),
    ),
    Primitive("check", "Raise RuntimeError(message), as eager would, at run time unless the 0-d bool holds. No result.",
              1, _check_infer, _check, ("message",)),
)  # fmt: skip
