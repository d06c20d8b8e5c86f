"""Integers that TensorRT has not, of 8 and 16 bits and unsigned ones, as those that have all of their values.

What an op makes of them is brought back into their range, so that each tensor has the values of the graph's.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import DType, Operation
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.tensorrt import rules

# Ops whose results are elements of their operands.
_CHOOSES = frozenset(
    f"flat.{name}"
    for name in (
        "broadcast", "concat", "constant", "gather", "max", "min", "pad", "reshape", "reverse", "select", "slice",
        "transpose",
    )
)  # fmt: skip


def wrapped(n: Network, op: Operation, x: Any) -> Any:
    """Return the result ``x`` of an op modulo the number of values of its dtype, where another dtype carries it."""
    dtype = op.result.dtype
    if dtype.name not in rules.CARRIERS or op.name in _CHOOSES or (op.name == "flat.cast" and _contains(dtype, op)):
        return x
    count = 1 << dtype.bits
    rest = n.binary("SUB", x, n.binary("PROD", n.binary("FLOOR_DIV", x, n.like(x, count)), n.like(x, count)))
    if not dtype.is_signed:
        return rest
    above = n.binary("GREATER", rest, n.like(x, count // 2 - 1))
    return n.select(above, n.binary("SUB", rest, n.like(x, count)), rest)


def _contains(dtype: DType, op: Operation) -> bool:
    """Say whether a dtype has all values of that which ``op`` converts from."""
    (source,) = (v.dtype for v in op.values)
    if source.is_bool:
        return True
    spare = dtype.bits - source.bits - (dtype.is_signed and not source.is_signed)
    return source.is_int and spare >= 0 and (dtype.is_signed or not source.is_signed)
