"""``INetworkDefinition``: every ``add_*`` checks the layer's documented rules, logs what is broken and returns None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.runtime.tensorrt.simulator import enums as e
from torchstone.compiler.runtime.tensorrt.simulator.layers import elementwise, indexing, movement, reduction, windowed
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, ILogger, InvalidNetwork, Known, Weights


class INetworkDefinition:
    """A network under construction; always strongly typed, as TensorRT 11 is."""

    def __init__(self, logger: ILogger) -> None:
        self.name = "Unnamed Network 0"
        self._logger = logger
        self._inputs: list[ITensor] = []
        self._layers: list[ILayer] = []
        self._outputs: list[ITensor] = []

    def _log(self, severity: ILogger.Severity, message: str) -> None:
        self._logger.log(severity, message)

    def _ordered(self) -> list[ILayer]:
        """Return the layers so that each follows those it reads: they may have been added in another order."""
        order: list[ILayer] = []
        seen: set[int] = set()

        def visit(layer: ILayer) -> None:
            if id(layer) not in seen:
                seen.add(id(layer))
                for tensor in layer._inputs:
                    if tensor is not None and tensor._source is not None:
                        visit(tensor._source)
                order.append(layer)

        for layer in self._layers:
            visit(layer)
        return order

    def _add(self, method: str, make: Callable[[], Any], complete: bool = True) -> Any:
        """Append the layer, unless it breaks a rule; ``complete`` is False when parameters are still to be set."""
        try:
            layer = make()
            if complete:
                layer._types()
        except InvalidNetwork as error:
            self._log(ILogger.ERROR, f"INetworkDefinition::{method}: Error Code 3: API Usage Error ({error})")
            return None
        self._layers.append(layer)
        return layer

    # Inputs, outputs, layers

    def add_input(self, name: str, dtype: e.DataType, shape: Any) -> ITensor | None:
        if any(t.name == name for t in self._inputs):
            self._log(ILogger.ERROR, f"INetworkDefinition::addInput: Error Code 3: duplicate input name {name}")
            return None
        tensor = ITensor(self, None, 0, Known(tuple(Dims(shape)), e.DataType(dtype)))
        tensor.name = name
        self._inputs.append(tensor)
        return tensor

    def mark_output(self, tensor: ITensor) -> None:
        if tensor.is_network_input or tensor.is_network_output:
            what = "a network input" if tensor.is_network_input else "already an output"
            self._log(ILogger.ERROR, f"INetworkDefinition::markOutput: Error Code 3: {tensor.name} is {what}")
            return
        self._outputs.append(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        self._outputs = [t for t in self._outputs if t is not tensor]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def get_input(self, index: int) -> ITensor | None:
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    def get_layer(self, index: int) -> ILayer | None:
        return self._layers[index] if 0 <= index < len(self._layers) else None

    # Elementwise

    def add_activation(self, input: ITensor, type: e.ActivationType) -> elementwise.IActivationLayer | None:
        return self._add("addActivation", lambda: elementwise.IActivationLayer(self, input, type))

    def add_cast(self, input: ITensor, to_type: e.DataType) -> elementwise.ICastLayer | None:
        return self._add("addCast", lambda: elementwise.ICastLayer(self, input, to_type))

    def add_elementwise(
        self, input1: ITensor, input2: ITensor, op: e.ElementWiseOperation
    ) -> elementwise.IElementWiseLayer | None:
        return self._add("addElementWise", lambda: elementwise.IElementWiseLayer(self, input1, input2, op))

    def add_identity(self, input: ITensor) -> elementwise.IIdentityLayer | None:
        return self._add("addIdentity", lambda: elementwise.IIdentityLayer(self, (input,)))

    def add_select(
        self, condition: ITensor, then_input: ITensor, else_input: ITensor
    ) -> elementwise.ISelectLayer | None:
        return self._add("addSelect", lambda: elementwise.ISelectLayer(self, (condition, then_input, else_input)))

    def add_unary(self, input: ITensor, op: e.UnaryOperation) -> elementwise.IUnaryLayer | None:
        return self._add("addUnary", lambda: elementwise.IUnaryLayer(self, input, op))

    # Movement

    def add_concatenation(self, inputs: Sequence[ITensor]) -> movement.IConcatenationLayer | None:
        return self._add("addConcatenation", lambda: movement.IConcatenationLayer(self, inputs), complete=False)

    def add_constant(self, shape: Any, weights: Weights) -> movement.IConstantLayer | None:
        return self._add("addConstant", lambda: movement.IConstantLayer(self, shape, weights))

    def add_fill(
        self, shape: Any, op: e.FillOperation, output_type: e.DataType = e.DataType.FLOAT
    ) -> movement.IFillLayer | None:
        return self._add("addFill", lambda: movement.IFillLayer(self, shape, op, output_type), complete=False)

    def add_shape(self, input: ITensor) -> movement.IShapeLayer | None:
        return self._add("addShape", lambda: movement.IShapeLayer(self, (input,)))

    def add_shuffle(self, input: ITensor) -> movement.IShuffleLayer | None:
        return self._add("addShuffle", lambda: movement.IShuffleLayer(self, input))

    def add_slice(self, input: ITensor, start: Any, shape: Any, stride: Any) -> movement.ISliceLayer | None:
        return self._add("addSlice", lambda: movement.ISliceLayer(self, input, start, shape, stride), complete=False)

    # Reduction and products

    def add_cumulative(
        self, input: ITensor, axis: ITensor, op: e.CumulativeOperation, exclusive: bool, reverse: bool
    ) -> reduction.ICumulativeLayer | None:
        return self._add("addCumulative", lambda: reduction.ICumulativeLayer(self, input, axis, op, exclusive, reverse))

    def add_matrix_multiply(
        self, input0: ITensor, op0: e.MatrixOperation, input1: ITensor, op1: e.MatrixOperation
    ) -> reduction.IMatrixMultiplyLayer | None:
        return self._add("addMatrixMultiply", lambda: reduction.IMatrixMultiplyLayer(self, input0, op0, input1, op1))

    def add_normalization(
        self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int,
    ) -> reduction.INormalizationLayer | None:  # fmt: skip
        return self._add(
            "addNormalization",
            lambda: reduction.INormalizationLayer(self, input, scale, bias, axesMask),
            complete=False,
        )

    def add_reduce(
        self, input: ITensor, op: e.ReduceOperation, axes: int, keep_dims: bool
    ) -> reduction.IReduceLayer | None:
        return self._add("addReduce", lambda: reduction.IReduceLayer(self, input, op, axes, keep_dims))

    def add_softmax(self, input: ITensor) -> reduction.ISoftMaxLayer | None:
        return self._add("addSoftMax", lambda: reduction.ISoftMaxLayer(self, input), complete=False)

    def add_topk(
        self, input: ITensor, op: e.TopKOperation, k: int, axes: int, indices_type: e.DataType = e.DataType.INT32
    ) -> reduction.ITopKLayer | None:
        return self._add("addTopK", lambda: reduction.ITopKLayer(self, input, op, k, axes, indices_type))

    def add_scale_nd(
        self, input: ITensor, mode: e.ScaleMode, shift: Weights, scale: Weights, power: Weights, channel_axis: int,
    ) -> elementwise.IScaleLayer | None:  # fmt: skip
        return self._add(
            "addScaleNd", lambda: elementwise.IScaleLayer(self, input, mode, shift, scale, power, channel_axis)
        )

    # Sliding windows

    def add_convolution_nd(
        self, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Weights, bias: Weights | None = None
    ) -> windowed.IConvolutionLayer | None:
        bias = Weights(kernel.dtype) if bias is None else bias
        return self._add(
            "addConvolutionNd",
            lambda: windowed.IConvolutionLayer(self, input, num_output_maps, kernel_shape, kernel, bias),
            complete=False,
        )

    def add_pooling_nd(self, input: ITensor, type: e.PoolingType, window_size: Any) -> windowed.IPoolingLayer | None:
        return self._add("addPoolingNd", lambda: windowed.IPoolingLayer(self, input, type, window_size), complete=False)

    # Indexing

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> indexing.IGatherLayer | None:
        mode = e.GatherMode.DEFAULT
        return self._add("addGather", lambda: indexing.IGatherLayer(self, input, indices, mode, axis))

    def add_gather_v2(self, input: ITensor, indices: ITensor, mode: e.GatherMode) -> indexing.IGatherLayer | None:
        return self._add("addGatherV2", lambda: indexing.IGatherLayer(self, input, indices, mode), complete=False)

    def add_scatter(
        self, data: ITensor, indices: ITensor, updates: ITensor, mode: e.ScatterMode
    ) -> indexing.IScatterLayer | None:
        return self._add(
            "addScatter", lambda: indexing.IScatterLayer(self, data, indices, updates, mode), complete=False
        )
