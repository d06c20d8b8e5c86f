"""Convolution, pooling and batch normalization in StableHLO, channels first or last."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.stablehlo.emitter import Handle, StablehloEmitter
from torchstone.compiler.lowering.stablehlo.reduction import combine, start
from torchstone.compiler.lowering.stablehlo.table import FLOAT, WIDE, Rule
from torchstone.compiler.ops.composite import FIRST


def layout(channels: str, space: int) -> str:
    """Return what StableHLO calls the dims of a convolution's tensors."""

    def dims(outer: str, inner: str) -> str:
        between = [str(d) for d in range(space)]
        return ", ".join([outer, inner, *between] if channels == FIRST else [outer, *between, inner])

    return f"[{dims('b', 'f')}]x[{dims('o', 'i')}]->[{dims('b', 'f')}]"


def _convolution(e: StablehloEmitter, op: Operation) -> Handle:
    (x, weight, *bias), a = op.values, op.attributes
    space, channels = x.rank - 2, a["channels"]
    out = e.emit(
        "convolution", e.of(op.result), e.values[id(x)], e.values[id(weight)],
        dimension_numbers=e.attribute(f"#stablehlo.conv<{layout(channels, space)}>"),
        window_strides=e.integers(a["stride"]), padding=e.matrix(list(zip(a["low"], a["high"], strict=True))),
        rhs_dilation=e.integers(a["dilation"]), feature_group_count=e.integer(a["groups"]),
        batch_group_count=e.integer(1),
    )  # fmt: skip
    if not bias:
        return out
    dim = 1 if channels == FIRST else op.result.rank - 1
    return e.map("add", out, e.broadcast(e.values[id(bias[0])], op.result.shape, (dim,), x.dtype))


def _takes_window(op: Operation) -> str | None:
    empty = any(0 in v.shape for v in (*op.values, *op.results))
    return f"{op.name}: StableHLO's windows have elements" if empty else None


def _reduce_window(e: StablehloEmitter, op: Operation, kind: str) -> Handle:
    (x,), a = op.values, op.attributes

    def whole(values: Sequence[Any], rest: Any) -> list[Any]:
        return [rest, rest, *values] if a["channels"] == FIRST else [rest, *values, rest]

    space = x.rank - 2
    made = e.create(
        "reduce_window", [e.of(op.result)], [e.values[id(x)], e.constant(start(kind, x.dtype), (), x.dtype)],
        1, window_dimensions=e.integers(whole(a["kernel"], 1)),
        window_strides=e.integers(whole(a["stride"], 1)),
        window_dilations=e.integers(whole(a.get("dilation", (1,) * space), 1)),
        padding=e.matrix(whole(list(zip(a["low"], a["high"], strict=True)), (0, 0))),
    )  # fmt: skip
    e.body(made, [e.element(x.dtype)] * 2, combine(e, kind))
    return made.result


def _max_pool(e: StablehloEmitter, op: Operation) -> Handle:
    return _reduce_window(e, op, "max")


def _average_pool(e: StablehloEmitter, op: Operation) -> Handle:
    """The sum of each window over the number of its elements, which is known."""
    (x,) = op.values
    counts = _counts(x, op)
    total = _reduce_window(e, op, "sum")
    shape = op.result.shape
    dims = tuple(range(2, len(shape))) if op.attributes["channels"] == FIRST else tuple(range(1, len(shape) - 1))
    if len(set(counts)) == 1:
        return e.map("divide", total, e.full(float(counts[0]), shape, x.dtype))
    table = e.constant(tuple(map(float, counts)), [shape[d] for d in dims], x.dtype)
    return e.map("divide", total, e.broadcast(table, shape, dims, x.dtype))


def _counts(x: Value, op: Operation) -> list[int]:
    """Return how many elements each window has, without those around the tensor, in row-major order."""
    a = op.attributes
    sizes = x.shape[2:] if a["channels"] == FIRST else x.shape[1:-1]
    counts = [1]
    for size, kernel, stride, low, high in zip(sizes, a["kernel"], a["stride"], a["low"], a["high"], strict=True):
        starts = range(-low, size + high - kernel + 1, stride)
        along = [max(min(first + kernel, size) - max(first, 0), 0) for first in starts]
        counts = [before * n for before in counts for n in along]
    windows = op.result.shape[2:] if a["channels"] == FIRST else op.result.shape[1:-1]
    assert len(counts) == prod(windows)
    return counts


def _batch_norm(e: StablehloEmitter, op: Operation) -> Handle:
    operands = [e.values[id(v)] for v in op.values]
    eps = e.ir.FloatAttr.get(e.ir.F32Type.get(), op.attributes["eps"])
    return e.emit(
        "batch_norm_inference", e.of(op.result), *operands, epsilon=eps, feature_index=e.integer(op.attributes["dim"])
    )


def _takes_batch_norm(op: Operation) -> str | None:
    # The attribute is a float32.
    exact = struct.unpack("f", struct.pack("f", op.attributes["eps"]))[0] == op.attributes["eps"]
    if op.result.dtype.name == "float64" and not exact:
        return f"flat.batch_norm: StableHLO's epsilon is a float32, which {op.attributes['eps']} is not"
    return _takes_window(op)


ROWS = (
    Rule("batch_norm", WIDE, _batch_norm, _takes_batch_norm),
    Rule("convolution", WIDE, _convolution, _takes_window),
    Rule("max_pool", FLOAT, _max_pool, _takes_window),
    Rule("average_pool", WIDE, _average_pool, _takes_window, dynamic=False),
)
