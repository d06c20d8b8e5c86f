"""Convolution and pooling as layers of their own: the network, run-time sizes, and what is left to the body.

That a layer gives what the body gives, special values included, is in ``tests/compiler/transforms/test_composites.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler import driver
from torchstone.compiler.ir import Graph, TensorType, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.lowering.tensorrt import TARGET, takes
from torchstone.compiler.runtime.interpreter import evaluate_graph

from .graphs import graph_of, kernel, legal

N, M = symbol("n"), symbol("m")
F32 = dt.float32


def window(*, stride: Any, low: Any, high: Any, dilation: Any = None, **more: Any) -> dict[str, Any]:
    apart = {} if dilation is None else {"dilation": dilation}
    return {"stride": stride, "low": low, "high": high, **apart, "channels": "first", **more}


def graph(name: str, shapes: Any, attributes: dict[str, Any], dtype: Any = F32) -> Graph:
    return graph_of(lambda b, *x: b.emit(name, *x, **attributes)[0], [TensorType(s, dtype) for s in shapes])


CONVOLVED = window(stride=(2, 1), low=(1, 0), high=(0, 2), dilation=(1, 2), groups=2)
ALONG = window(stride=(2,), low=(1,), high=(0,), dilation=(1,), groups=1)
POOLED = window(stride=(2, 2), low=(1, 1), high=(1, 1), kernel=(3, 3))
TEXTS = {
    "convolution": (
        graph("convolution", ((2, 4, 7, 8), (6, 2, 3, 3), (6,)), CONVOLVED),
        """\
network(%input0: FLOAT[2, 4, 7, 8], %input1: FLOAT[6, 2, 3, 3], %input2: FLOAT[6]) {
  %output0: FLOAT[2, 6, 3, 6] = CONVOLUTION(%input0, %input1, %input2)  \
// flat.convolution window [3, 3] stride [2, 1] padding [1, 0] [0, 2]
  return %output0
}
""",
    ),
    "along one dim": (
        graph("convolution", ((N, 3, 9), (4, 3, 3)), ALONG),
        """\
network(%input0: FLOAT[-1, 3, 9], %input1: FLOAT[4, 3, 3]) {
  %t0: FLOAT[-1, 3, 9, 1] = SHUFFLE(%input0)  // flat.convolution to [n, 3, 9, 1]
  %t1: FLOAT[4, 3, 3, 1] = SHUFFLE(%input1)  // flat.convolution to [4, 3, 3, 1]
  %t2: FLOAT[-1, 4, 4, 1] = CONVOLUTION(%t0, %t1)  \
// flat.convolution window [3, 1] stride [2, 1] padding [1, 0] [0, 0]
  %output0: FLOAT[-1, 4, 4] = SHUFFLE(%t2)  // flat.convolution to [n, 4, 4]
  return %output0
}
""",
    ),
    "max_pool": (
        graph("max_pool", ((2, 3, 8, 8),), {**POOLED, "dilation": (1, 1)}),
        """\
network(%input0: FLOAT[2, 3, 8, 8]) {
  %t0: FLOAT[2, 3, 4, 4] = POOLING(%input0)  // flat.max_pool MAX window [3, 3] stride [2, 2] padding [1, 1] [1, 1]
  %t1: BOOL[2, 3, 8, 8] = UNARY(%input0)  // flat.max_pool ISNAN
  %t2: FLOAT[2, 3, 8, 8] = CAST(%t1)  // flat.max_pool FLOAT
  %t3: FLOAT[2, 3, 4, 4] = POOLING(%t2)  // flat.max_pool MAX window [3, 3] stride [2, 2] padding [1, 1] [1, 1]
  %t4: FLOAT[1, 1, 1, 1] = CONSTANT()  // flat.max_pool 0
  %t5: BOOL[2, 3, 4, 4] = ELEMENTWISE(%t3, %t4)  // flat.max_pool GREATER
  %t6: FLOAT[1, 1, 1, 1] = CONSTANT()  // flat.max_pool nan
  %output0: FLOAT[2, 3, 4, 4] = SELECT(%t5, %t6, %t0)  // flat.max_pool
  return %output0
}
""",
    ),
    "average_pool": (
        graph("average_pool", ((2, 3, 8, 8),), POOLED),
        """\
network(%input0: FLOAT[2, 3, 8, 8]) {
  %output0: FLOAT[2, 3, 4, 4] = POOLING(%input0)  \
// flat.average_pool AVERAGE window [3, 3] stride [2, 2] padding [1, 1] [1, 1]
  return %output0
}
""",
    ),
    "sigmoid": (
        graph("sigmoid", ((3,),), {}),
        """\
network(%input0: FLOAT[3]) {
  %output0: FLOAT[3] = ACTIVATION(%input0)  // flat.sigmoid SIGMOID
  return %output0
}
""",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_network(name: str) -> None:
    program, want = TEXTS[name]
    assert TARGET.lower(program).texts["tensorrt"]().partition("\n")[2] == want


SPACE = window(stride=(1, 2), low=(1, 0), high=(0, 1), dilation=(1, 2), groups=1)
DYNAMIC: list[tuple[Any, Any]] = [
    (lambda b, x, w: b.emit("convolution", x, w, **SPACE)[0], ((N, 3, M, M + 2), (4, 3, 2, 2))),
    (lambda b, x, w, v: b.emit("convolution", x, w, v, **ALONG)[0], ((N, 3, M), (4, 3, 3), (4,))),
    # TensorRT does not see the channels through a slice whose sizes are computed at run time.
    (lambda b, x, w: b.emit("convolution", b.slice(x, 0, N // 2, N), w, **SPACE)[0], ((N, 3, 4, 5), (4, 3, 2, 2))),
    (lambda b, x: b.emit("max_pool", x, **{**POOLED, "dilation": (1, 1)})[0], ((N, 2, M + 1, 6),)),
    (lambda b, x: b.emit("average_pool", x, **window(stride=(2,), low=(1,), high=(1,), kernel=(2,)))[0], ((N, 2, M),)),
]


@pytest.mark.parametrize(("build", "shapes"), DYNAMIC)
def test_sizes_known_at_run_time(build: Any, shapes: Any) -> None:
    program = graph_of(build, [TensorType(shape, F32) for shape in shapes])
    assert takes(program.ops[-1]) is None
    run = kernel(program)
    generator = torch.Generator().manual_seed(0)
    for sizes in ({"n": 3, "m": 4}, {"n": 1, "m": 7}, {"n": 0, "m": 4}):
        tensors = [torch.randn([evaluate(d, sizes) for d in shape], generator=generator) for shape in shapes]
        for got, want in zip(run(tensors), evaluate_graph(legal(program), tensors), strict=True):
            torch.testing.assert_close(got, want)


PLAIN = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
LEFT: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("channels in the second dim", "convolution", ((1, 4, 4, 3), (2, 2, 2, 3)),
     {**PLAIN, "groups": 1, "channels": "last"}),
    ("without elements", "convolution", ((0, 3, 4, 4), (2, 3, 2, 2)), window(**PLAIN, groups=1)),
    ("without elements", "average_pool", ((0, 3, 8, 8),), POOLED),
    ("kernel, and the channels, known at build time", "convolution", ((1, N, 4, 4), (2, N, 2, 2)),
     window(**PLAIN, groups=1)),
    ("kernel, and the channels, known at build time", "convolution", ((1, 3, 4, 4), (2, 3, N, 2)),
     window(**PLAIN, groups=1)),
    ("windows over 2 and 3 dims, not over 4", "convolution", ((1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1)),
     window(stride=(1,) * 4, low=(0,) * 4, high=(0,) * 4, dilation=(1,) * 4, groups=1)),
    ("has no dilation", "max_pool", ((1, 1, 8, 8),), {**POOLED, "dilation": (2, 1)}),
    ("where all are padding", "max_pool", ((1, 1, 8, 8),), {**POOLED, "low": (3, 0), "dilation": (1, 1)}),
    ("where all are padding", "average_pool", ((1, 1, 8, N),), {**POOLED, "high": (1, 3)}),
]  # fmt: skip


@pytest.mark.parametrize(("why", "name", "shapes", "attributes"), LEFT)
def test_left_to_the_body(why: str, name: str, shapes: Any, attributes: dict[str, Any]) -> None:
    (op,) = graph(name, shapes, attributes).ops
    reason = takes(op)
    assert reason is not None and why in reason and reason.startswith(f"flat.{name}: ")


def test_padding_that_no_window_reads_is_taken() -> None:
    """The last window starts at 6, of 8 elements and 3 after: none is all padding."""
    (op,) = graph("average_pool", ((1, 1, 8, 8),), window(stride=(3, 3), low=(0, 0), high=(3, 3), kernel=(3, 3))).ops
    assert takes(op) is None


def test_types() -> None:
    """16-bit floats are widened where sums are rounded; integers, and BOOL, have no such layers."""
    for dtype in (dt.float16, dt.bfloat16):
        assert takes(graph("max_pool", ((2, 3, 8, 8),), {**POOLED, "dilation": (1, 1)}, dtype).ops[0]) is None
        for name, shapes, attributes in (
            ("average_pool", ((2, 3, 8, 8),), POOLED), ("sigmoid", ((3,),), {}),
            ("convolution", ((1, 3, 4, 4), (2, 3, 2, 2)), window(**PLAIN, groups=1)),
        ):  # fmt: skip
            assert "does not take" in (takes(graph(name, shapes, attributes, dtype).ops[0]) or "")
    integers = graph("max_pool", ((2, 3, 8, 8),), {**POOLED, "dilation": (1, 1)}, dt.int32)
    assert takes(integers.ops[0]) == "flat.max_pool: TensorRT's pooling MAX does not take int32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_convolution_of_any_float_is_one_layer(dtype: torch.dtype) -> None:
    args = [torch.ones(shape, dtype=dtype) for shape in ((1, 3, 6, 6), (4, 3, 3, 3), (4,))]
    compiled = driver.compile(lambda *a: torch.nn.functional.conv2d(*a, padding="same"), args, "tensorrt")
    assert compiled.ir["tensorrt"].count(" = CONVOLUTION(") == 1
