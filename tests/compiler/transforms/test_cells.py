"""Every (primitive, dtype, target) cell is an answer: taken, legalized to what is taken, or Unsupported."""

from __future__ import annotations

from typing import Any

import pytest

from torchstone.compiler.diagnostics import Unsupported, VerifyError
from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.dtypes import DTYPES, DType
from torchstone.compiler.lowering.registry import TARGETS, find_target
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand

SHAPE = (2, 3, 4)


def _identity(kind: TensorType) -> Graph:
    value = Value(kind)
    return Graph("g", [value], [], (value,))


def examples(name: str, dtype: DType) -> list[tuple[list[TensorType], dict[str, Any]]]:
    """Return operand types and attributes of calls of a primitive on one dtype."""
    x, number, places = TensorType(SHAPE, dtype), TensorType((), dtype), TensorType((5,), dt.int64)
    sliding = {"stride": (1,), "low": (0,), "high": (2,), "dilation": (1,)}
    batched = {"a_batch": (0,), "b_batch": (0,), "a_sum": (2,), "b_sum": (1,)}
    structured: dict[str, list[tuple[list[TensorType], dict[str, Any]]]] = {
        "select": [([TensorType(SHAPE, dt.boolean), x, x], {})],
        "cast": [([x], {"dtype": d}) for d in DTYPES],
        "bitcast": [([x], {"dtype": d}) for d in DTYPES],
        "broadcast": [([x], {"shape": (5, *SHAPE), "dims": (1, 2, 3)}), ([number], {"shape": SHAPE, "dims": ()})],
        "reshape": [([x], {"shape": (24,)}), ([x], {"shape": (1, 6, 4)})],
        "transpose": [([x], {"permutation": (2, 0, 1)})],
        "slice": [([x], {"start": (0, 1, 0), "limit": (2, 3, 4), "stride": s}) for s in ((1, 1, 1), (2, 1, 3))],
        "reverse": [([x], {"dims": (0, 2)})],
        "concat": [([x, x], {"dim": 1}), ([x], {"dim": 0})],
        "pad": [([x, number], {"low": (1, 0, 0), "high": (0, 2, 0)})],
        "iota": [([], {"size": 5, "dtype": dtype})],
        "constant": [([], {"value": 1, "shape": SHAPE, "dtype": dtype})],
        "reduce": [([x], {"kind": k, "dims": d}) for k in ("sum", "prod", "max", "and", "or") for d in ((1,), (0, 2))],
        "arg_reduce": [([x], {"kind": k, "dim": 1}) for k in ("argmax", "argmin")],
        "contract": [([x, TensorType((2, 4, 5), dtype)], batched), ([x, x], {**batched, "b_sum": (2,)})],
        "convolution": [
            ([x, TensorType((6, 3 // groups, 2), dtype), *bias], {**sliding, "groups": groups, "channels": "first"})
            for groups, bias in ((1, []), (3, [TensorType((6,), dtype)]))
        ],
        **{
            name: [([x], {"kernel": (2,), "stride": (1,), "low": (1,), "high": (0,), **more, "channels": "last"})]
            for name, more in (("max_pool", {"dilation": (1,)}), ("average_pool", {}))
        },
        "batch_norm": [([x, *[TensorType(SHAPE[1:2], dtype)] * 4], {"eps": 1e-5, "dim": 1})],
        "normalize": [([x, *[TensorType((4,), dtype)] * n], {"dims": (2,), "eps": 1e-5}) for n in range(3)],
        "softmax": [([x], {"dim": dim}) for dim in (0, 2)],
        "gelu": [([x], {"approximate": how}) for how in ("none", "tanh")],
        "clamp": [([x], {"low": -1.0, "high": high}) for high in (0.5, float("inf"))],
        "windows": [([x], {"dims": (1, 2), "kernel": (2, 2), "stride": (1, 2), "dilation": (2, 1)})],
        "gather": [([x, places, places], {"dims": (0, 2)})],
        "scatter": [
            ([x, TensorType((5, 2, 4), dtype), places], {"dims": (1,), "kind": k}) for k in ("set", "add", "max")
        ],
        "scan": [([x], {"kind": k, "dim": 1}) for k in ("sum", "max")],
        "sort": [([x], {"dim": 1, "descending": True})],
        "check": [([number], {"message": "no"})],
        "bind": [([number], {"size": 5})],
        "cond": [([TensorType((), dt.boolean), x], {"then": _identity(x), "otherwise": _identity(x)})],
        "while": [([number], {"condition": _identity(number), "body": _identity(number), "carried": 1})],
        "require": [([], {"left": 5, "right": symbol("u0"), "relation": "eq"})],
        "specialize": [([number], {"value": 1})],
        "answer": [([number], {"question": "format", "by": ".2f", "value": "1.00"})],
        "seed": [([], {"seed": 3})],
    }
    if name in structured:
        return structured[name]
    row = PRIMITIVES[f"flat.{name}"]
    assert row.elementwise, f"{name} is new: give an example of a call of it here"
    return [([x] * (row.arity or 0), {})]


@pytest.mark.few(3)
@pytest.mark.parametrize("target", TARGETS)
def test_every_cell_is_an_answer(target: str) -> None:
    takes = find_target(target).takes
    answered = 0
    for row in PRIMITIVES.values():
        for dtype in DTYPES:
            for types, attributes in examples(row.name, dtype):
                args = [Value(t, f"x{i}") for i, t in enumerate(types)]
                graph = Graph("f", args)
                try:
                    graph.outputs = Builder(graph.ops).emit(row.name, *args, **attributes)
                except VerifyError:
                    continue  # the primitive is not defined for this dtype
                try:
                    out = expand(graph, takes)
                    assert all(takes(op) is None for op in out.ops)
                    answered += 1
                except Unsupported as error:
                    assert error.op == row.op and len(error.message) > 10, (row.name, dtype, error)
    assert answered > 200
