"""Ops with sliding windows in TOSA, channels last: TOSA 1.1 specification, "Tensor operators"."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter
from torchstone.compiler.lowering.tosa.table import TosaRule, names
from torchstone.compiler.ops.composite import FIRST, LAST
from torchstone.compiler.transforms.legalizations.empty import is_empty

# TOSA 1.1, level 8K: the most for a kernel times its dilation, and for a stride.
MAX_KERNEL, MAX_STRIDE = 8192, 8192


def _takes_convolution(op: Operation) -> str | None:
    x, weight, *_ = op.values
    a = op.attributes
    space = x.rank - 2
    if any(is_empty(v) for v in (*op.values, *op.results)):
        return "flat.convolution: TOSA has no empty tensors"
    if space > 3:
        return f"flat.convolution: TOSA has none over {space} dims"
    inner = weight.shape[1 if a["channels"] == FIRST else -1]
    if a["groups"] != 1 and (inner != 1 or space > 2):
        return f"flat.convolution: TOSA has none of {a['groups']} groups of {inner} channels over {space} dims"
    kernel = weight.shape[2:] if a["channels"] == FIRST else weight.shape[1:-1]
    reaches = [size * apart for size, apart in zip(kernel, a["dilation"], strict=True)]
    if max(*reaches, *a["low"], *a["high"]) > MAX_KERNEL or max(a["stride"]) > MAX_STRIDE:
        return "flat.convolution: TOSA level 8K has no such kernel, padding or stride"
    return None


def flattened(e: TosaEmitter, x: Handle, space: int) -> Handle:
    """Give a tensor of one dim of space, [n, l, c], a second one before it."""
    shape = e.shape(x)
    return e.reshape(x, [shape[0], 1, *shape[1:]]) if space == 1 else x


def trimmed(e: TosaEmitter, x: Handle, kernel: list[int], a: dict[str, Any]) -> tuple[Handle, list[int]]:
    """Return the input and its padding without what no window reads: TOSA wants the last window to end at the end."""
    shape = e.shape(x)
    amounts: list[int] = []
    limits = list(shape)
    for dim, (size, low, high, stride, apart) in enumerate(
        zip(kernel, a["low"], a["high"], a["stride"], a["dilation"], strict=True), 1
    ):
        rest = (shape[dim] + low + high - ((size - 1) * apart + 1)) % stride
        amounts += [low, max(high - rest, 0)]
        limits[dim] -= max(rest - high, 0)
    if limits != shape:
        x = e.tosa.slice(e.type(limits, x.type.element_type), x, e.sizes([0] * len(shape)), e.sizes(limits))
    return x, amounts


def _convolution(e: TosaEmitter, op: Operation) -> Handle:
    if op.attributes["channels"] != LAST:
        raise AssertionError("channels_last comes before")
    x, weight = (e.full(v) for v in list(op.values)[:2])
    bias: list[Value] = list(op.values)[2:]
    space, a = op.result.rank - 2, dict(op.attributes)
    x, weight = flattened(e, x, space), flattened(e, weight, space)
    if space == 1:
        a |= {name: (fill, *a[name]) for name, fill in (("low", 0), ("high", 0), ("stride", 1), ("dilation", 1))}
    outer, *kernel, _ = e.shape(weight)
    x, amounts = trimmed(e, x, kernel, a)
    element = x.type.element_type
    zero = e.constant(0.0, [1], element)
    name = "conv3d" if space == 3 else "conv2d"
    if a["groups"] != 1:
        name, depth = "depthwise_conv2d", e.shape(x)[-1]
        weight = e.transpose(e.reshape(weight, [depth, outer // depth, *kernel]), [2, 3, 0, 1])
    counts = op.result.shape[1:-1] if space > 1 else (1, *op.result.shape[1:-1])
    out = getattr(e.tosa, name)(
        e.type([e.shape(x)[0], *counts, outer], element), x, weight, e.full(bias[0]) if bias else zero, zero, zero,
        *map(e.numbers_attribute, (amounts, a["stride"], a["dilation"])), e.ir.TypeAttr.get(element),
    )  # fmt: skip
    return e.reshape(out, op.result.shape)


def _takes_pool(op: Operation) -> str | None:
    (x,), a = op.values, op.attributes
    if is_empty(x) or is_empty(op.result):
        return f"{op.name}: TOSA has no empty tensors"
    if x.rank != 4:
        return f"{op.name}: TOSA has none over {x.rank - 2} dims"
    if any(apart != 1 for apart in a.get("dilation", ())):
        return f"{op.name}: TOSA has no dilation here"
    if max(a["kernel"]) > MAX_KERNEL or max(a["stride"]) > MAX_STRIDE:
        return f"{op.name}: TOSA level 8K has no such kernel or stride"
    space = x.shape[2:] if a["channels"] == FIRST else x.shape[1:3]
    for size, kernel, low, high, stride in zip(space, a["kernel"], a["low"], a["high"], a["stride"], strict=True):
        if max(low, high - (size + low + high - kernel) % stride) >= kernel:
            return f"{op.name}: TOSA wants less padding than there are elements in a window of {kernel}"
    return None


def _pool(e: TosaEmitter, op: Operation) -> Handle:
    if op.attributes["channels"] != LAST:
        raise AssertionError("channels_last comes before")
    a = {"dilation": (1, 1), **op.attributes}
    x, amounts = trimmed(e, e.full(next(op.values)), a["kernel"], a)
    kind, element = e.type(op.result.shape, op.result.dtype), x.type.element_type
    kernel, stride, pad = map(e.numbers_attribute, (a["kernel"], a["stride"], amounts))
    if op.name == "flat.max_pool":
        return e.tosa.max_pool2d(kind, x, kernel, stride, pad)  # a NaN is propagated, unless asked otherwise
    zero = e.constant(0.0, [1], element)
    return e.tosa.avg_pool2d(kind, x, zero, zero, kernel, stride, pad, e.ir.TypeAttr.get(element))


ROWS = (
    TosaRule("convolution", names("float32"), _convolution, _takes_convolution),
    TosaRule("max_pool", names("float32", "float16", "bfloat16"), _pool, _takes_pool),
    TosaRule("average_pool", names("float32"), _pool, _takes_pool),
)
