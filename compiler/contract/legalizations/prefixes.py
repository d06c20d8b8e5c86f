"""Scans by doubling: after step k each element is combined with the 2**k before it."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler.contract.legalizations.common import legalization
from torchstone.compiler.contract.rules import Declined, Expander
from torchstone.compiler.ir import DType, Value

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@legalization("scan")
def scan(b: Expander, x: Value, *, kind: str, dim: int) -> Value:
    """log2(size) times: the elements moved 1, 2, 4, … places on, combined with those that are there."""
    size = x.shape[dim]
    if not isinstance(size, int):
        raise Declined
    identity = b.scalar(_identity(kind, x.dtype), x.dtype)
    none, step = (0,) * x.rank, 1
    while step < size and 0 not in x.shape:
        low = (*none[:dim], step, *none[dim + 1 :])
        (before,) = b.emit("pad", b.slice(x, dim, 0, size - step), identity, low=low, high=none)
        (x,) = b.emit(_COMBINE[kind], before, x)
        step *= 2
    return x


def _identity(kind: str, dtype: DType) -> Any:
    """Return the number that changes no other."""
    if kind in ("sum", "prod"):
        one = int(kind == "prod")
        return complex(one) if dtype.is_complex else float(one) if dtype.is_float else one
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    least = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return least if kind == "max" else least + (1 << dtype.bits) - 1
