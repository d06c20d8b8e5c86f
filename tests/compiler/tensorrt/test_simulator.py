"""The simulator refuses what TensorRT documents as invalid, in its way: an error in the log, None for a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchstone.compiler.runtime.tensorrt import simulator as trt

F, H, B, I32, L, P = (trt.DataType[n] for n in ("FLOAT", "HALF", "BF16", "INT32", "INT64", "BOOL"))
E, U, R = trt.ElementWiseOperation, trt.UnaryOperation, trt.ReduceOperation
MAX, AVERAGE = trt.PoolingType.MAX, trt.PoolingType.AVERAGE
EMPTY = trt.Weights(F)


class Collector(trt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        self.messages.append(msg)


@pytest.fixture
def log() -> Collector:
    return Collector()


@pytest.fixture
def net(log: Collector) -> trt.INetworkDefinition:
    return trt.Builder(log).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def tensor(net: trt.INetworkDefinition, dtype: trt.DataType, *shape: int) -> Any:
    return net.add_input(f"x{net.num_inputs}", dtype, shape)


Make = Callable[[Any], Any]
REFUSED: list[tuple[str, Make]] = [
    (
        "inputs must have the same number of dimensions, got FLOAT[2,3], FLOAT[3]",
        lambda n: n.add_elementwise(tensor(n, F, 2, 3), tensor(n, F, 3), E.SUM),
    ),
    (
        "sizes must match or be 1, got FLOAT[2,3], FLOAT[2,4]",
        lambda n: n.add_elementwise(tensor(n, F, 2, 3), tensor(n, F, 2, 4), E.SUM),
    ),
    ("input types differ, got FLOAT[2], HALF[2]", lambda n: n.add_elementwise(tensor(n, F, 2), tensor(n, H, 2), E.SUM)),
    ("takes BF16/FLOAT/HALF, got INT32[2]", lambda n: n.add_elementwise(tensor(n, I32, 2), tensor(n, I32, 2), E.POW)),
    ("takes BOOL, got INT32[2]", lambda n: n.add_elementwise(tensor(n, I32, 2), tensor(n, I32, 2), E.AND)),
    ("elementwise EQUAL: takes", lambda n: n.add_elementwise(tensor(n, P, 2), tensor(n, P, 2), E.EQUAL)),
    ("unary EXP: takes BF16/FLOAT/HALF, got INT64[2]", lambda n: n.add_unary(tensor(n, L, 2), U.EXP)),
    ("unary TAN: takes FLOAT/HALF, got BF16[2]", lambda n: n.add_unary(tensor(n, B, 2), U.TAN)),
    ("unary NOT: takes BOOL, got INT32[2]", lambda n: n.add_unary(tensor(n, I32, 2), U.NOT)),
    ("reduce: takes", lambda n: n.add_reduce(tensor(n, P, 2), R.SUM, 1, False)),
    ("axes mask 0b100 must name dims of FLOAT[2,3]", lambda n: n.add_reduce(tensor(n, F, 2, 3), R.SUM, 4, False)),
    ("reduce: takes at least one dim", lambda n: n.add_reduce(tensor(n, F), R.SUM, 1, False)),
    (
        "inner sizes differ, got 3 and 4",
        lambda n: n.add_matrix_multiply(
            tensor(n, F, 2, 3), trt.MatrixOperation.NONE, tensor(n, F, 4, 2), trt.MatrixOperation.NONE
        ),
    ),
    (
        "matrix multiply: takes BF16/FLOAT/HALF, got INT32[2,2]",
        lambda n: n.add_matrix_multiply(
            tensor(n, I32, 2, 2), trt.MatrixOperation.NONE, tensor(n, I32, 2, 2), trt.MatrixOperation.NONE
        ),
    ),
    ("the condition must be BOOL", lambda n: n.add_select(tensor(n, I32, 2), tensor(n, F, 2), tensor(n, F, 2))),
    ("constant: does not support BOOL", lambda n: n.add_constant((1,), trt.Weights(np.array([True])))),
    ("2 weights for shape (3,)", lambda n: n.add_constant((3,), trt.Weights(np.zeros(2, np.float32)))),
    (
        "must be one of the last four",
        lambda n: n.add_topk(tensor(n, F, 2, 1, 1, 1, 1), trt.TopKOperation.MAX, 1, 1),
    ),
    ("more than 8 dims", lambda n: n.add_gather(tensor(n, F, *(1,) * 8), tensor(n, I32, 1, 1), 0)),
    ("k must be at most 3840, got 4000", lambda n: n.add_topk(tensor(n, F, 5000), trt.TopKOperation.MAX, 4000, 1)),
]
REFUSED += [
    (
        "convolution: takes BF16/FLOAT/HALF, got INT32[1,1,3,3]",
        lambda n: n.add_convolution_nd(tensor(n, I32, 1, 1, 3, 3), 1, (1, 1), EMPTY),
    ),
    (
        "a window over 2 or 3 dims is supported, got (3,)",
        lambda n: n.add_convolution_nd(tensor(n, F, 1, 1, 3), 1, (3,), EMPTY),
    ),
    (
        "FLOAT[1,3,3] must have 4 dims for window (1, 1)",
        lambda n: n.add_convolution_nd(tensor(n, F, 1, 3, 3), 1, (1, 1), EMPTY),
    ),
    (
        "the channels must be known at build time, got FLOAT[2,-1,3,3]",
        lambda n: n.add_convolution_nd(tensor(n, F, 2, -1, 3, 3), 1, (1, 1), EMPTY),
    ),
    ("pooling: takes BF16/FLOAT/HALF", lambda n: n.add_pooling_nd(tensor(n, I32, 1, 1, 3, 3), MAX, (2, 2))),
    ("window over 2 or 3 dims", lambda n: n.add_pooling_nd(tensor(n, F, 1, 1, 3, 3), MAX, (2,))),
    ("must have 5 dims for window", lambda n: n.add_pooling_nd(tensor(n, F, 1, 1, 3, 3), AVERAGE, (2, 2, 2))),
]


def convolved(n: Any, *inputs: Any, maps: int = 2, kernel: Any = EMPTY, bias: Any = EMPTY, **parameters: Any) -> Any:
    """[1, 4, 5, 5] with a window of 3 x 2, inputs 1 and 2, and parameters set later."""
    layer = n.add_convolution_nd(tensor(n, F, 1, 4, 5, 5), maps, (3, 2), kernel, bias)
    for index, value in enumerate(inputs, 1):
        layer.set_input(index, value)
    for name, value in parameters.items():
        assert hasattr(layer, name)
        setattr(layer, name, value)
    return layer


def pooled(n: Any, kind: Any = MAX, **parameters: Any) -> Any:
    """[1, 4, 5, 5] with a window of 3 x 2."""
    layer = n.add_pooling_nd(tensor(n, F, 1, 4, 5, 5), kind, (3, 2))
    for name, value in parameters.items():
        assert hasattr(layer, name)
        setattr(layer, name, value)
    return layer


REFUSED_WHEN_READ: list[tuple[str, Make]] = [
    ("slice: out of bounds in dim 0: start 1, size 2", lambda n: n.add_slice(tensor(n, F, 2), (1,), (2,), (1,))),
    ("start (0,) must have 2 sizes", lambda n: n.add_slice(tensor(n, F, 2, 2), (0,), (2, 2), (1, 1))),
    (
        "sizes differ in dim 1: [2, 3]",
        lambda n: n.add_concatenation([tensor(n, F, 2, 2), tensor(n, F, 2, 3)]),
    ),
    ("0 FLOAT weights for kernel (2, 4, 3, 2)", convolved),
    ("the kernel must be (2, 4, 3, 2), got FLOAT[2,4,2,3]", lambda n: convolved(n, tensor(n, F, 2, 4, 2, 3))),
    ("convolution: input types differ", lambda n: convolved(n, tensor(n, H, 2, 4, 3, 2))),
    ("the bias must be (2,), got FLOAT[3]", lambda n: convolved(n, tensor(n, F, 2, 4, 3, 2), tensor(n, F, 3))),
    (
        "the weights of a kernel that is an input must be empty",
        lambda n: convolved(n, tensor(n, F, 2, 4, 3, 2), kernel=trt.Weights(np.zeros(48, np.float32))),
    ),
    (
        "48 HALF weights for kernel (2, 4, 3, 2)",
        lambda n: convolved(n, kernel=trt.Weights(np.zeros(48, np.float16))),
    ),
    ("4 channels to 2 maps in 3 groups", lambda n: convolved(n, num_groups=3)),
    ("4 channels to 3 maps in 2 groups", lambda n: convolved(n, maps=3, num_groups=2)),
    ("stride_nd (0, 1) must have 2 entries of at least 1", lambda n: convolved(n, stride_nd=(0, 1))),
    ("dilation_nd (1,) must have 2 entries", lambda n: convolved(n, dilation_nd=(1,))),
    ("pre_padding (0, -1) must have 2 entries of at least 0", lambda n: convolved(n, pre_padding=(0, -1))),
    (
        "a window that reaches over 7 does not fit into 5 padded by 1 and 0",
        lambda n: convolved(n, tensor(n, F, 2, 4, 3, 2), dilation_nd=(3, 1), pre_padding=(1, 0)),
    ),
    ("a window that reaches over 6 does not fit into 5", lambda n: pooled(n, window_size_nd=(6, 1))),
    ("window_size_nd (0, 2) must have 2 entries of at least 1", lambda n: pooled(n, window_size_nd=(0, 2))),
    ("post_padding (1, 1, 1) must have 2 entries", lambda n: pooled(n, post_padding=(1, 1, 1))),
    ("MAX_AVERAGE_BLEND is not simulated", lambda n: pooled(n, trt.PoolingType.MAX_AVERAGE_BLEND)),
]


@pytest.mark.parametrize(("message", "make"), REFUSED, ids=[m for m, _ in REFUSED])
def test_an_invalid_layer_is_none_and_the_rule_is_logged(
    net: trt.INetworkDefinition, log: Collector, message: str, make: Make
) -> None:
    assert make(net) is None
    assert message in log.messages[-1]
    assert net.num_layers == 0


@pytest.mark.parametrize(("message", "make"), REFUSED_WHEN_READ, ids=[m for m, _ in REFUSED_WHEN_READ])
def test_an_incomplete_layer_is_refused_when_its_shape_is_read(
    net: trt.INetworkDefinition, log: Collector, message: str, make: Make
) -> None:
    layer = make(net)
    with pytest.raises(ValueError, match="should return >= 0"):
        _ = layer.get_output(0).shape
    assert message in log.messages[-1]


def test_parameters_set_later_are_checked(net: trt.INetworkDefinition, log: Collector) -> None:
    layer = net.add_shuffle(tensor(net, F, 2, 3))
    assert layer is not None
    layer.reshape_dims = (3, -1)
    assert layer.get_output(0).shape == (3, 2)
    layer.reshape_dims = (0, 3)
    assert layer.get_output(0).shape == (2, 3), "0 copies the size"
    layer.zero_is_placeholder = False
    with pytest.raises(ValueError, match="should return"):
        _ = layer.get_output(0).shape
    assert "reshape changes volume" in log.messages[-1]
    layer.reshape_dims = (6,)
    layer.first_transpose = (1, 1)
    with pytest.raises(ValueError, match="should return"):
        _ = layer.get_output(0).shape


def test_nine_dims_are_refused_with_the_bindings_words() -> None:
    with pytest.raises(ValueError, match=r"Input length 9\. Max expected length is 8"):
        trt.Dims((1,) * 9)


def test_fill_needs_its_value_and_strict_bounds_none(net: trt.INetworkDefinition, log: Collector) -> None:
    layer = net.add_slice(tensor(net, F, 2), (-1,), (4,), (1,))
    assert layer is not None
    layer.mode = trt.SampleMode.FILL
    with pytest.raises(ValueError, match="should return"):
        _ = layer.get_output(0).shape
    assert "needs the fill value" in log.messages[-1]
    layer.set_input(4, tensor(net, I32))
    with pytest.raises(ValueError, match="should return"):
        _ = layer.get_output(0).shape
    assert "must be a FLOAT scalar" in log.messages[-1]
    layer.set_input(4, tensor(net, F))
    assert layer.get_output(0).shape == (4,)


def run(log: Collector, net: Any, *inputs: torch.Tensor, profile: Any = None) -> list[torch.Tensor]:
    """Build the network and run it on CPU tensors, as the real API is used."""
    builder, runtime = trt.Builder(log), trt.Runtime(log)
    config = builder.create_builder_config()
    if profile is not None:
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(net, config)
    assert plan is not None, log.messages
    engine = runtime.deserialize_cuda_engine(plan)
    assert engine is not None
    context = engine.create_execution_context()
    outputs = []
    for i, x in enumerate(inputs):
        assert context.set_input_shape(net.get_input(i).name, tuple(x.shape)), log.messages
        context.set_tensor_address(net.get_input(i).name, x.data_ptr())
    for i in range(net.num_outputs):
        name = net.get_output(i).name
        dtype = {F: torch.float32, P: torch.bool, L: torch.int64, I32: torch.int32}[engine.get_tensor_dtype(name)]
        outputs.append(torch.empty(tuple(context.get_tensor_shape(name)), dtype=dtype))
        context.set_tensor_address(name, outputs[-1].data_ptr())
    assert context.execute_async_v3(0), log.messages
    return outputs


def test_what_is_undocumented_is_at_its_worst(net: trt.INetworkDefinition, log: Collector) -> None:
    a, b = tensor(net, F, 3), tensor(net, F, 3)
    i, j = tensor(net, I32, 3), tensor(net, I32, 3)
    for layer in (
        net.add_elementwise(a, b, E.MAX),
        net.add_reduce(a, R.MAX, 1, False),
        net.add_elementwise(i, j, E.DIV),
        net.add_topk(b, trt.TopKOperation.MAX, 1, 1),
    ):
        net.mark_output(layer.get_output(layer.num_outputs - 1))
    x, y = torch.tensor([torch.nan, 1.0, -2.0]), torch.tensor([5.0, 1.0, 5.0])
    got = run(log, net, x, y, torch.tensor([7, -7, 7], dtype=torch.int32), torch.tensor([0, 2, -2], dtype=torch.int32))
    assert got[0].tolist() == [5.0, 1.0, 5.0]
    assert got[3].item() == 2, "of equal elements, the last"
    assert got[1].item() == 1.0
    assert got[2].tolist() == [-1, -3, -3]


def test_pooling_pads_as_documented_and_drops_a_nan(net: trt.INetworkDefinition, log: Collector) -> None:
    x = tensor(net, F, 1, 1, 1, 3)
    for kind, counted in ((MAX, False), (AVERAGE, False), (AVERAGE, True)):
        layer = net.add_pooling_nd(x, kind, (1, 2))
        assert layer is not None and layer.average_count_excludes_padding
        layer.pre_padding, layer.average_count_excludes_padding = (0, 2), not counted
        net.mark_output(layer.get_output(0))
    largest, average, over_all = run(log, net, torch.tensor([-3.0, torch.nan, -5.0]).reshape(1, 1, 1, 3))
    assert largest.flatten().tolist() == [-torch.inf, -3.0, -3.0, -5.0]
    assert average.flatten().tolist()[:2] == [0.0, -3.0] and over_all.flatten().tolist()[:2] == [0.0, -1.5]
    assert average.flatten()[2:].isnan().all()


def test_a_convolution_has_its_weights_as_parameters_or_inputs(net: trt.INetworkDefinition, log: Collector) -> None:
    """Groups, dilation, padding on one side, stride; a kernel of [o, c / groups, *window]."""
    values, bias = np.arange(12, dtype=np.float32), np.array([1.0, -1.0], np.float32)
    x, kernel, added = tensor(net, F, 1, 4, 5, 5), tensor(net, F, 2, 2, 3, 1), tensor(net, F, 2)
    for inputs in ((), (kernel, added)):
        given = (EMPTY, EMPTY) if inputs else (trt.Weights(values), trt.Weights(bias))
        layer = net.add_convolution_nd(x, 2, (3, 1), *given)
        assert layer is not None
        for index, value in enumerate(inputs, 1):
            layer.set_input(index, value)
        layer.num_groups, layer.dilation_nd, layer.stride_nd, layer.post_padding = 2, (2, 1), (1, 2), (1, 0)
        assert layer.get_output(0).shape == (1, 2, 2, 3)
        net.mark_output(layer.get_output(0))
    data = torch.randn(1, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    weight = torch.from_numpy(values).reshape(2, 2, 3, 1)
    padded = torch.nn.functional.pad(data, (0, 0, 0, 1))
    want = torch.nn.functional.conv2d(padded, weight, torch.from_numpy(bias), (1, 2), 0, (2, 1), 2)
    for got in run(log, net, data, weight, torch.from_numpy(bias)):
        torch.testing.assert_close(got, want)


def test_dynamic_input_needs_a_profile_that_fits(net: trt.INetworkDefinition, log: Collector) -> None:
    x = tensor(net, F, -1, 2)
    layer = net.add_unary(x, U.NEG)
    assert layer is not None
    net.mark_output(layer.get_output(0))
    builder = trt.Builder(log)
    config = builder.create_builder_config()
    assert builder.build_serialized_network(net, config) is None
    assert "no optimization profile" in log.messages[-1]
    profile = builder.create_optimization_profile()
    with pytest.raises(ValueError, match="inconsistent"):
        profile.set_shape("x0", (3, 2), (2, 2), (4, 2))
    profile.set_shape("x0", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    assert builder.build_serialized_network(net, config) is None
    assert "does not fit input x0 FLOAT[-1,2]" in log.messages[-1]
    profile.set_shape("x0", (1, 2), (2, 2), (4, 2))
    assert run(log, net, torch.ones(3, 2), profile=profile)[0].tolist() == [[-1.0, -1.0]] * 3
    plan = builder.build_serialized_network(net, config)
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    assert engine is not None
    context = engine.create_execution_context()
    assert not context.set_input_shape("x0", (5, 2))
    assert "outside profile 0" in log.messages[-1]
    assert not context.set_tensor_address("x0", 0)
    assert not context.execute_async_v3(0)


def test_a_context_has_one_of_the_profiles(net: trt.INetworkDefinition, log: Collector) -> None:
    """Shapes belong to it, and are set again after another was selected."""
    x = tensor(net, F, -1)
    net.mark_output(net.add_unary(x, U.NEG).get_output(0))
    builder = trt.Builder(log)
    config = builder.create_builder_config()
    for index, bounds in enumerate(((1, 1, 1), (2, 4, 8))):
        profile = builder.create_optimization_profile()
        profile.set_shape("x0", *((size,) for size in bounds))
        assert config.add_optimization_profile(profile) == index
    engine = trt.Runtime(log).deserialize_cuda_engine(builder.build_serialized_network(net, config))
    assert engine is not None and engine.num_optimization_profiles == 2
    profile.set_shape("x0", (9,), (9,), (9,))
    assert engine.get_tensor_profile_shape("x0", 1) == [(2,), (4,), (8,)], "as they were when it was built"
    context = engine.create_execution_context()
    assert context.active_optimization_profile == 0
    assert context.set_input_shape("x0", (1,)) and not context.set_input_shape("x0", (4,))
    assert "outside profile 0" in log.messages[-1]
    assert not context.set_optimization_profile_async(2, 0)
    assert "profile 2 is not one of 2" in log.messages[-1]
    assert context.set_optimization_profile_async(1, 0) and context.active_optimization_profile == 1
    assert context.get_tensor_shape("x0") == (-1,)
    assert not context.set_input_shape("x0", (1,)) and context.set_input_shape("x0", (4,))
    assert "outside profile 1" in log.messages[-1]


def test_the_optimum_has_to_fit_the_network_and_the_bounds_should(net: trt.INetworkDefinition, log: Collector) -> None:
    x, y = tensor(net, F, -1), tensor(net, F, -1)
    net.mark_output(net.add_elementwise(x, y, E.SUM).get_output(0))
    builder = trt.Builder(log)

    def built(*bounds: int) -> Any:
        log.messages.clear()
        config, profile = builder.create_builder_config(), builder.create_optimization_profile()
        profile.set_shape("x0", (3,), (4,), (8,))
        profile.set_shape("x1", *((size,) for size in bounds))
        config.add_optimization_profile(profile)
        return builder.build_serialized_network(net, config)

    assert built(3, 4, 8) is not None and not log.messages
    assert built(2, 4, 8) is not None
    assert "kMIN values for profile 0 violate shape constraints: (Unnamed Layer* 0)" in log.messages[-1]
    assert built(3, 5, 8) is None
    assert "Error Code 4: kOPT values for profile 0 violate shape constraints" in log.messages[-1]
    x.set_dimension_name(0, "n")
    y.set_dimension_name(0, "n")
    assert built(1, 1, 1) is None
    assert "dimension n is 4 and, in x1, 1" in log.messages[-1]


def test_a_timing_cache_of_another_device_is_refused(log: Collector) -> None:
    config = trt.Builder(log).create_builder_config()
    made = config.create_timing_cache(b"")
    assert config.set_timing_cache(config.create_timing_cache(made.serialize()), ignore_mismatch=False)
    assert not config.set_timing_cache(config.create_timing_cache(b"of another"), ignore_mismatch=False)
    assert "the header does not fit" in log.messages[-1]


def test_a_network_without_outputs_is_refused(net: trt.INetworkDefinition, log: Collector) -> None:
    tensor(net, F, 2)
    builder = trt.Builder(log)
    assert builder.build_serialized_network(net, builder.create_builder_config()) is None
    assert "at least one output" in log.messages[-1]


def test_shape_tensors_are_folded(net: trt.INetworkDefinition) -> None:
    x = tensor(net, F, 2, 3)
    sizes = net.add_shape(x).get_output(0)
    two = net.add_constant((2,), trt.Weights(np.array([1, 2], dtype=np.int64))).get_output(0)
    product = net.add_elementwise(sizes, two, E.PROD).get_output(0)
    layer = net.add_slice(x, (0, 0), (0, 0), (1, 0))
    layer.set_input(2, product)
    assert layer.get_output(0).shape == (2, 6)
    shuffle = net.add_shuffle(x)
    shuffle.set_input(1, net.add_slice(sizes, (1,), (2,), (-1,)).get_output(0))
    assert shuffle.get_output(0).shape == (3, 2)
