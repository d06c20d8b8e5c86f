"""FlatIR's movement primitives as shuffle, slice, concatenation, fill and constant layers."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.tensorrt.held import Held
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.transforms.legalizations.indexing import is_row_gather


def _ranks_differ(op: Operation) -> str | None:
    return None if next(op.values).rank == op.result.rank else "a slice keeps the rank"


@lowers("broadcast", "slice", rules.LAYERS["Slice"], _ranks_differ, holds=True)
def broadcast(n: Network, op: Operation, x: Held) -> Held:
    """Nothing here: a reader that does not broadcast repeats the dims of size 1 by a slice of stride 0."""
    return x


@lowers("reshape", "shuffle", rules.LAYERS["Shuffle"], holds=True)
def reshape(n: Network, op: Operation, x: Held) -> Held:
    return x.reshaped(n, op, next(op.values).shape, op.result.shape)


@lowers("transpose", "shuffle", rules.LAYERS["Shuffle"], holds=True)
def transpose(n: Network, op: Operation, x: Held) -> Held:
    return x.transposed(n, op, op.attributes["permutation"])


@lowers("slice", "slice", rules.LAYERS["Slice"])
def slice_(n: Network, op: Operation, x: Any) -> Any:
    return n.slice(x, op.attributes["start"], op.result.shape, op.attributes["stride"])


@lowers("reverse", "slice", rules.LAYERS["Slice"])
def reverse(n: Network, op: Operation, x: Any) -> Any:
    """Start at the last element and go back; a dim with no last element stays."""
    shape = op.result.shape
    dims = [d for d in op.attributes["dims"] if shape[d] != 0]
    start = [size - 1 if d in dims else 0 for d, size in enumerate(shape)]
    return n.slice(x, start, shape, [-1 if d in dims else 1 for d in range(len(shape))]) if dims else x


@lowers("concat", "concatenation", rules.LAYERS["Concatenation"])
def concat(n: Network, op: Operation, *tensors: Any) -> Any:
    return tensors[0] if len(tensors) == 1 else n.concat(tensors, op.attributes["dim"])


@lowers("pad", "slice in mode FILL", rules.LAYERS["Slice"])
def pad(n: Network, op: Operation, x: Any, value: Any) -> Any:
    """A slice that starts before x and ends behind it, filled outside."""
    start = [-amount for amount in op.attributes["low"]]
    return n.slice(x, start, op.result.shape, [1] * len(start), fill=value) if start else x


def _no_rows(op: Operation) -> str | None:
    return None if is_row_gather(op) else "only rows of a matrix are gathered"


@lowers("gather", "gather", rules.INTS, _no_rows)
def gather(n: Network, op: Operation, x: Any, places: Any) -> Any:
    """Indices in range: TensorRT counts negative ones from the end, and does not say what those too large read."""
    last = next(op.values).shape[0] - 1
    inside = n.binary("MAX", n.binary("MIN", places, n.like(places, last)), n.like(places, 0))
    return n.gather(x, inside)


@lowers("iota", "fill LINSPACE", rules.FILL["LINSPACE"])
def iota(n: Network, op: Operation) -> Any:
    return n.iota(op.attributes["size"], rules.carrier(op.attributes["dtype"]))


@lowers("constant", "constant", rules.ANY, holds=True)
def constant(n: Network, op: Operation) -> Held:
    a = op.attributes
    name = rules.carrier(a["dtype"])
    if isinstance(a["value"], tuple):
        return Held(op.result.shape, n.constant(a["value"], a["shape"], name))
    return Held((1,) * op.result.rank, splat=(a["value"], name))
