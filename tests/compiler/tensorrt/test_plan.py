"""The simulator's plans: bytes that hold all of a network, and that are refused when they are damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from torchstone.compiler.runtime.tensorrt import simulator as trt
from torchstone.compiler.runtime.tensorrt.simulator.plan import MAGIC, from_bytes, to_bytes
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer

F, I64 = trt.DataType.FLOAT, trt.DataType.INT64
EMPTY = trt.Weights(F)


def four() -> trt.Weights:
    return trt.Weights(np.arange(4, dtype=np.float32))


def ones(net: Any, dtype: Any, *shape: int) -> Any:
    return net.add_constant(shape, trt.Weights(np.ones(shape, dtype))).get_output(0)


def shuffled(net: Any, x: Any) -> Any:
    layer = net.add_shuffle(x)
    layer.first_transpose, layer.reshape_dims, layer.zero_is_placeholder = (0, 1, 3, 2), (2, 4, 9), False
    return layer


def sliced(net: Any, x: Any) -> Any:
    layer = net.add_slice(x, (0, 0, 0, 0), (2, 4, 3, 5), (1, 1, 1, 1))
    layer.mode = trt.SampleMode.FILL
    layer.set_input(4, ones(net, np.float32))
    return layer


def convolved(net: Any, x: Any) -> Any:
    layer = net.add_convolution_nd(x, 4, (1, 1), trt.Weights(np.ones((4, 2), np.float32)), four())
    layer.num_groups, layer.pre_padding = 2, (1, 0)
    return layer


def normalized(net: Any, x: Any) -> Any:
    layer = net.add_normalization(x, *[ones(net, np.float32, 1, 1, 3, 3)] * 2, 12)
    layer.epsilon = 1e-3
    return layer


def filled(net: Any, x: Any) -> Any:
    layer = net.add_fill((3,), trt.FillOperation.LINSPACE, F)
    layer.set_input(1, ones(net, np.float32))
    layer.set_input(2, ones(net, np.float32, 1))
    return layer


LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "activation": lambda n, x: n.add_activation(x, trt.ActivationType.TANH),
    "cast": lambda n, x: n.add_cast(x, trt.DataType.BF16),
    "concatenation": lambda n, x: n.add_concatenation([x, x]),
    "convolution": convolved,
    "elementwise": lambda n, x: n.add_elementwise(x, x, trt.ElementWiseOperation.SUB),
    "fill": filled,
    "gather": lambda n, x: n.add_gather(x, ones(n, np.int64, 1), 2),
    "identity": lambda n, x: n.add_identity(x),
    "matrix_multiply": lambda n, x: n.add_matrix_multiply(
        x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.TRANSPOSE
    ),
    "normalization": normalized,
    "pooling": lambda n, x: n.add_pooling_nd(x, trt.PoolingType.AVERAGE, (2, 2)),
    "reduce": lambda n, x: n.add_reduce(x, trt.ReduceOperation.MAX, 6, True),
    "scale": lambda n, x: n.add_scale_nd(x, trt.ScaleMode.CHANNEL, four(), EMPTY, EMPTY, 1),
    "scatter": lambda n, x: n.add_scatter(x, n.add_cast(x, I64).get_output(0), x, trt.ScatterMode.ELEMENT),
    "select": lambda n, x: n.add_select(n.add_unary(x, trt.UnaryOperation.ISNAN).get_output(0), x, x),
    "shape": lambda n, x: n.add_shape(x),
    "shuffle": shuffled,
    "slice": sliced,
    "softmax": lambda n, x: n.add_softmax(x),
    "topk": lambda n, x: n.add_topk(x, trt.TopKOperation.MIN, 2, 4),
    "cumulative": lambda n, x: n.add_cumulative(x, ones(n, np.int64), trt.CumulativeOperation.SUM, True, False),
}


class Quiet(trt.ILogger):
    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        self.said = msg


def network(name: str) -> trt.INetworkDefinition:
    """A network of the layer, of x [2, 4, 3, 3]."""
    net = trt.INetworkDefinition(Quiet())
    x = net.add_input("x", F, (2, 4, 3, 3))
    x.set_dimension_name(1, "c")
    layer = LAYERS[name](net, x)
    assert layer is not None, net._logger.said
    layer.name = "the layer"
    layer.get_output(0).name = "y"
    net.mark_output(layer.get_output(0))
    return net


def state(layer: ILayer) -> dict[str, Any]:
    """What a layer has beside its tensors and what is inferred of it; weights as bytes."""
    kept = {k: v for k, v in vars(layer).items() if k not in ("_network", "_inputs", "_outputs", "_cache", "metadata")}
    return {k: (v.dtype, bytes(v._bytes)) if isinstance(v, trt.Weights) else v for k, v in kept.items()}


@pytest.mark.parametrize("name", LAYERS)
def test_a_plan_holds_all_of_a_layer(name: str) -> None:
    net = network(name)
    plan = to_bytes(net, [])
    again, _ = from_bytes(plan, net._logger)
    assert to_bytes(again, []) == plan
    for old, new in zip(net._ordered(), again._layers, strict=True):
        assert type(new) is type(old) and state(new) == state(old)
        assert [t.name for t in new._outputs] == [t.name for t in old._outputs]
        assert [str(t._infer()) for t in new._outputs] == [str(t._infer()) for t in old._outputs]


def test_every_layer_is_tried() -> None:
    tried = {type(layer) for name in LAYERS for layer in network(name)._layers}
    assert {c for c in ILayer.__subclasses__() if c.__module__.startswith("torchstone.")} - tried == set()


def test_a_damaged_plan_is_refused_or_is_another_network() -> None:
    """Whatever byte is another: no exception, and nothing of a plan runs when it is read."""
    log = Quiet()
    plan = to_bytes(network("scale"), [{"x": [trt.Dims((2, 4, 3, 3))] * 3}])
    runtime = trt.Runtime(log)
    assert runtime.deserialize_cuda_engine(plan) is not None
    for place in range(len(plan)):
        changed = bytearray(plan)
        changed[place] ^= 1
        runtime.deserialize_cuda_engine(bytes(changed))
    for size in range(0, len(plan), 7):
        assert runtime.deserialize_cuda_engine(plan[:size]) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MAGIC, b"torchstone simulated plan 0\n", "not a simulated plan of this version"),
        (b"IScaleLayer", b"Quiet", "damaged plan: KeyError: 'Quiet'"),
        (b'"channel_axis": 1', b'"channel_axis": 2', "the channels must be dim 0 or 1, got 2"),
        (b'"start": 0', b'"start": 8', "weights out of range"),
        (b'"bytes": 16', b'"bytes": 17', "16 of 17 bytes of weights"),
    ],
)
def test_why_a_plan_is_refused(old: bytes, new: bytes, words: str) -> None:
    log = Quiet()
    plan = to_bytes(network("scale"), [])
    assert trt.Runtime(log).deserialize_cuda_engine(plan.replace(old, new, 1)) is None
    assert log.said.startswith("IRuntime::deserializeCudaEngine: Error Code 1:") and words in log.said
