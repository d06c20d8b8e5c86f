"""FlatIR's convolution and pooling as layers of their own, for two or three dims of space; one dim gets a second.

TensorRT has the channels in the second dim, as PyTorch has. The body of a composite takes care of the other order, of
tensors without elements, and of 16-bit convolutions and averages, which are computed in float32: TensorRT may
accumulate in the type it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.ops.composite import FIRST
from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.transforms.legalizations.empty import is_empty

# What the second dim of space, of size 1, makes of each parameter of a window.
_ALONE = {"kernel": 1, "stride": 1, "low": 0, "high": 0, "dilation": 1}


def _takes(op: Operation) -> str | None:
    x = next(op.values)
    if op.attributes["channels"] != FIRST:
        return "TensorRT has the channels in the second dim"
    if any(is_empty(v) for v in (*op.values, *op.results)):
        return "tensors without elements are left to the body"
    return f"TensorRT has windows over 2 and 3 dims, not over {x.rank - 2}" if x.rank > 5 else None


def _takes_convolution(op: Operation) -> str | None:
    x, weight, *_ = op.values
    if not all(isinstance(size, int) for size in (x.shape[1], *weight.shape)):
        return "TensorRT wants the sizes of the kernel, and the channels, known at build time"
    return _takes(op)


def _takes_pool(op: Operation) -> str | None:
    refusal, (x,), a = _takes(op), op.values, op.attributes
    if refusal is not None:
        return refusal
    if any(apart != 1 for apart in a.get("dilation", ())):
        return "TensorRT's pooling has no dilation"
    for size, kernel, low, high, stride in zip(x.shape[2:], a["kernel"], a["low"], a["high"], a["stride"], strict=True):
        rest = (size + low + high - kernel) % stride if isinstance(size, int) else 0
        if max(low, high - rest) >= kernel:
            return f"TensorRT does not say what a window of {kernel} elements gives where all are padding"
    return None


def _flattened(n: Network, x: Any, shape: Sequence[Dim]) -> Any:
    """Give a tensor of one dim of space, [n, c, l], a second one behind it; ``shape`` has its sizes."""
    return n.reshape(x, shape, (*shape, 1)) if len(shape) == 3 else x


def _window(op: Operation, kernel: Sequence[Any]) -> dict[str, Any]:
    """Return the parameters of the windows, over two dims of space or three."""
    given = {**op.attributes, "kernel": kernel}
    window = {name: given[name] for name in _ALONE if name in given}
    return window if len(kernel) > 1 else {name: (*values, _ALONE[name]) for name, values in window.items()}


@lowers("convolution", "convolution", frozenset({"FLOAT"}), _takes_convolution)
def convolution(n: Network, op: Operation, *operands: Any) -> Any:
    """The weight and the bias are tensors, inputs 1 and 2 of the layer: parameters are arguments of the program."""
    shapes = [v.shape for v in op.values]
    window = _window(op, shapes[1][2:])
    kernel = window.pop("kernel")
    x, weight, *bias = (n.told(x, shape) for x, shape in zip(operands, shapes, strict=True))
    x, weight = _flattened(n, x, shapes[0]), _flattened(n, weight, shapes[1])
    out = n.convolution(x, weight, bias[0] if bias else None, op.attributes["groups"], kernel, **window)
    return _restored(n, out, op.result)


def _restored(n: Network, out: Any, result: Value) -> Any:
    """Undo what ``_flattened`` did."""
    shape = result.shape
    return n.reshape(out, (*shape, 1), shape) if len(shape) == 3 else out


def _pooled(n: Network, op: Operation, name: str, x: Any) -> Any:
    """Pool a tensor that already has two dims of space or three."""
    window = _window(op, op.attributes["kernel"])
    window.pop("dilation", None)
    return n.pooling(name, x, window.pop("kernel"), **window)


@lowers("average_pool", "pooling AVERAGE", frozenset({"FLOAT"}), _takes_pool)
def average_pool(n: Network, op: Operation, x: Any) -> Any:
    x = _flattened(n, x, next(op.values).shape)
    return _restored(n, _pooled(n, op, "AVERAGE", x), op.result)


@lowers("max_pool", "pooling MAX", rules.FLOATS, _takes_pool)
def max_pool(n: Network, op: Operation, x: Any) -> Any:
    """Pooling says nothing of NaN, which wins in FlatIR: a window with one is found by a pooling of its own."""
    x = _flattened(n, x, next(op.values).shape)
    out = _pooled(n, op, "MAX", x)
    nans = _pooled(n, op, "MAX", n.cast(n.unary("ISNAN", n.cast(x, "FLOAT")), "FLOAT"))
    found = n.binary("GREATER", nans, n.like(nans, 0))
    return _restored(n, n.select(found, n.like(out, float("nan")), out), op.result)
