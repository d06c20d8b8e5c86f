"""Products and convolutions on our runtime, where tiles pay: by the kernels that the linalg target has for them.

Upstream lowers ``tosa.matmul`` and ``tosa.conv2d`` to loop nests that go over the elements one by one, twenty times
slower. What is validated and printed stays TOSA; the others stay upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.linalg.build import emit
from torchstone.compiler.lowering.linalg.contraction import tiles_pay
from torchstone.compiler.transforms.builder import Builder


def product(op: Any) -> Any:
    """Return the result of a product of static float32 tensors at the insertion point, None where tiles do not pay."""
    out = op.results[0].type
    count = len(op.operands) - 2  # the last two are zero points
    types = [v.type for v in (*op.operands[:count], op.results[0])]
    if not all(isinstance(t.element_type, mlir.ir.F32Type) and t.has_static_shape for t in types):
        return None
    columns = types[1].shape[2] * types[1].shape[0] if op.name == "tosa.matmul" else types[1].shape[0]
    if not columns or not tiles_pay(prod(out.shape) * (prod(types[1].shape) // columns)):
        return None
    graph = Graph("product", [])
    b, sources = Builder(graph.ops), []
    operands = []
    for value in list(op.operands)[:count]:
        source, permutation = _before_transpose(value)
        sources.append(source)
        arg = Value(TensorType(tuple(source.type.shape), dt.float32))
        graph.args.append(arg)
        operands.append(b.transpose(arg, permutation))
    graph.outputs = (_FORMULAS[op.name](b, op, *operands),)
    return emit(graph, sources, _module(op).body).tensor(graph.outputs[0])


def _before_transpose(value: Any) -> tuple[Any, tuple[int, ...]]:
    """Return what a value is a transpose of, itself if of nothing, and the permutation: a kernel reads in any order."""
    op = getattr(value.owner, "operation", None)
    if op is None or op.name != "tosa.transpose":
        return value, tuple(range(value.type.rank))
    return op.operands[0], tuple(op.attributes["perms"])


def _module(op: Any) -> Any:
    while op.name != "builtin.module":
        op = op.parent.operation
    return op.opview


def _matmul(b: Builder, op: Any, x: Value, y: Value) -> Value:
    return b.contract(x, y, a_batch=(0,), b_batch=(0,), a_sum=(2,), b_sum=(1,))


def _convolution(b: Builder, op: Any, x: Value, weight: Value, bias: Value) -> Value:
    """[n, *space, c], [o, *kernel, c] -> [n, *windows, o]."""
    pad, stride, dilation = (tuple(op.attributes[name]) for name in ("pad", "stride", "dilation"))
    space = len(stride)
    if any(pad):
        low, high = ((0, *pad[first::2], 0) for first in (0, 1))
        x = b.emit("pad", x, b.scalar(0.0, x.dtype), low=low, high=high)[0]
    kernel = tuple(weight.shape[1:-1])
    rows = b.windows(x, dims=tuple(range(1, space + 1)), kernel=kernel, stride=stride, dilation=dilation)
    out = b.contract(
        rows, weight, a_batch=(), b_batch=(),
        a_sum=(*range(space + 2, 2 * space + 2), space + 1), b_sum=tuple(range(1, space + 2)),
    )  # fmt: skip
    return b.add(out, b.broadcast(bias, out.shape, (space + 1,)))


_FORMULAS: dict[str, Callable[..., Value]] = {
    "tosa.matmul": _matmul,
    "tosa.conv2d": _convolution,
    "tosa.conv3d": _convolution,
}
PRODUCTS: Sequence[str] = tuple(_FORMULAS)
