"""FlatIR's reductions and contraction as reduce and matrix-multiply layers.

16-bit floats are not taken, so that they are widened to float32: TensorRT may accumulate in the type it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.lowering.tensorrt.held import Held
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.transforms.legalizations.reductions import is_batched_matmul

_EXACT = rules.INTS | {"FLOAT"}


@lowers("reduce", "reduce", _EXACT | rules.BOOL)
def reduce(n: Network, op: Operation, x: Any) -> Any:
    kind, dims = op.attributes["kind"], op.attributes["dims"]
    if not dims:
        return x
    if kind in ("and", "or"):
        return _logical(n, kind, x, dims)
    out = n.reduce(kind.upper(), x, dims)
    if kind in ("max", "min") and x.dtype.name in rules.FLOATS:
        # Reduce says nothing of NaN, which wins in FlatIR.
        nan = _logical(n, "or", n.unary("ISNAN", x), dims)
        out = n.select(nan, n.like(out, float("nan")), out)
    return out


@lowers("softmax", "softmax", frozenset({"FLOAT"}))
def softmax(n: Network, op: Operation, x: Any) -> Any:
    """SoftMax's formula leaves open what infinity over infinity is: what has an infinite maximum is NaN in FlatIR.

    The maximum less itself would say so, too, but versions without STRICT_NANS may take it for 0.
    """
    dim = op.attributes["dim"]
    infinite = n.unary("ISINF", n.reduce("MAX", x, (dim,), keep=True))
    out = n.add("softmax", x, axes=1 << dim)
    return n.select(infinite, n.like(out, float("nan")), out)


def _logical(n: Network, kind: str, x: Any, dims: Sequence[int]) -> Any:
    """Reduce takes no BOOL. Count: "or" is "some are true", "and" is "none is false"; right for no elements too."""
    count = n.reduce("SUM", n.cast(n.unary("NOT", x) if kind == "and" else x, "INT32"), dims)
    return n.binary("EQUAL" if kind == "and" else "GREATER", count, n.like(count, 0))


def _turned(a: Value, b: Value, attributes: Any) -> tuple[bool, bool] | None:
    """Say which operands are to be transposed for a product of the last two dims; None where it is no such product."""
    batch = a.rank - 2
    first = tuple(range(batch))
    sums = (*attributes["a_sum"], *attributes["b_sum"])
    matrices = a.rank == b.rank >= 2 and attributes["a_batch"] == attributes["b_batch"] == first
    return (sums[0] == batch, sums[1] == batch + 1) if matrices and len(sums) == 2 else None


def _not_matmul(op: Operation) -> str | None:
    a, b = op.values
    if a.dtype.is_float:
        wrong = _turned(a, b, op.attributes) is None
        return "a matrix multiply layer takes the last two dims, after equal ones" if wrong else None
    return None if is_batched_matmul(a, b, **op.attributes) else "integers are multiplied as [B, M, K] x [B, K, N]"


@lowers("contract", "matrix multiply", _EXACT, _not_matmul, holds=True)
def contract(n: Network, op: Operation, left: Held, right: Held) -> Held:
    """An operand that is a transpose is read as it was before: the layer transposes."""
    values, shape = list(op.values), op.result.shape
    summed = values[0].shape[op.attributes["a_sum"][0]]
    if summed == 0:
        return Held((1,) * len(shape), splat=(0, rules.carrier(op.result.dtype)))
    turned = _turned(values[0], values[1], op.attributes)
    tensors, turns = [], []
    for value, held, turn in zip(values, (left, right), turned or (False, False), strict=True):
        before = held.untransposed() if turned and held.shape == value.shape else None
        tensors.append(n.expand(held.read(n), held.shape, value.shape) if before is None else before)
        turns.append(turn != (before is not None))
    if values[0].dtype.is_float:
        return Held(shape, n.matmul(tensors[0], tensors[1], turns))
    return Held(shape, _integer_product(n, tensors[0], tensors[1], (*shape[:2], summed, shape[2])))


def _integer_product(n: Network, a: Any, b: Any, sizes: Sequence[Dim]) -> Any:
    """MatrixMultiply takes floats only: integers are multiplied with broadcasting, and summed."""
    batch, rows, summed, columns = sizes
    a = n.reshape(a, (batch, rows, summed), (batch, rows, summed, 1))
    b = n.reshape(b, (batch, summed, columns), (batch, 1, summed, columns))
    return n.reduce("SUM", n.binary("PROD", a, b), (2,))
