"""FlatIR's reductions and contraction as reduce and matrix-multiply layers.

16-bit floats are not taken, so that they are widened to float32: TensorRT may accumulate in the type it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Operation
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


def _logical(n: Network, kind: str, x: Any, dims: Sequence[int]) -> Any:
    """Reduce takes no BOOL. Count: "or" is "some are true", "and" is "none is false"; right for no elements too."""
    count = n.reduce("SUM", n.cast(n.unary("NOT", x) if kind == "and" else x, "INT32"), dims)
    none = n.binary("EQUAL", count, n.like(count, 0))
    return none if kind == "and" else n.unary("NOT", none)


def _not_matmul(op: Operation) -> str | None:
    a, b = op.values
    return None if is_batched_matmul(a, b, **op.attributes) else "a matrix multiply layer takes [B, M, K] x [B, K, N]"


@lowers("contract", "matrix multiply", _EXACT, _not_matmul)
def contract(n: Network, op: Operation, a: Any, b: Any) -> Any:
    (batch, rows, summed), columns = next(op.values).shape, op.result.shape[2]
    if summed == 0:  # an empty sum
        return n.expand(n.like(a, 0), (1, 1, 1), op.result.shape)
    if a.dtype.name == "FLOAT":
        return n.matmul(a, b)
    # MatrixMultiply takes floats only: integers are multiplied with broadcasting, and summed.
    a = n.reshape(a, (batch, rows, summed), (batch, rows, summed, 1))
    b = n.reshape(b, (batch, summed, columns), (batch, 1, summed, columns))
    return n.reduce("SUM", n.binary("PROD", a, b), (2,))
