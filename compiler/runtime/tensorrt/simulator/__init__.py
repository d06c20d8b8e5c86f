"""A stand-in for the ``tensorrt`` module: its class, method and argument names, its rules, and the CPU for a GPU.

It holds the part of the API that the lowering and the engine runtime use. A network that TensorRT documents as invalid
is refused in TensorRT's way: an error is logged and the call returns None. What TensorRT leaves undefined takes the
value least convenient to PyTorch semantics, so that a lowering cannot rely on it. Nothing is fused, nothing is timed,
and numbers are those of torch on the CPU, 16-bit floats rounded after every layer.
"""

from torchstone.compiler.runtime.tensorrt.simulator.builder import (
    Builder,
    IBuilderConfig,
    IOptimizationProfile,
    ITimingCache,
)
from torchstone.compiler.runtime.tensorrt.simulator.engine import ICudaEngine, IExecutionContext, IHostMemory, Runtime
from torchstone.compiler.runtime.tensorrt.simulator.enums import (
    ActivationType,
    BuilderFlag,
    CumulativeOperation,
    DataType,
    ElementWiseOperation,
    FillOperation,
    GatherMode,
    LayerType,
    MatrixOperation,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    PoolingType,
    ReduceOperation,
    SampleMode,
    ScaleMode,
    ScatterMode,
    TensorIOMode,
    TensorLocation,
    TopKOperation,
    UnaryOperation,
)
from torchstone.compiler.runtime.tensorrt.simulator.layers.elementwise import (
    IActivationLayer,
    ICastLayer,
    IElementWiseLayer,
    IIdentityLayer,
    IScaleLayer,
    ISelectLayer,
    IUnaryLayer,
)
from torchstone.compiler.runtime.tensorrt.simulator.layers.indexing import IGatherLayer, IScatterLayer
from torchstone.compiler.runtime.tensorrt.simulator.layers.movement import (
    IConcatenationLayer,
    IConstantLayer,
    IFillLayer,
    IShapeLayer,
    IShuffleLayer,
    ISliceLayer,
)
from torchstone.compiler.runtime.tensorrt.simulator.layers.reduction import (
    ICumulativeLayer,
    IMatrixMultiplyLayer,
    IReduceLayer,
    ISoftMaxLayer,
    ITopKLayer,
)
from torchstone.compiler.runtime.tensorrt.simulator.layers.windowed import IConvolutionLayer, IPoolingLayer
from torchstone.compiler.runtime.tensorrt.simulator.network import INetworkDefinition
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, ILogger, Logger, Permutation, Weights

__all__ = [
    "ActivationType", "Builder", "BuilderFlag", "CumulativeOperation", "DataType", "Dims", "ElementWiseOperation",
    "FillOperation", "GatherMode", "IActivationLayer", "IBuilderConfig", "ICastLayer", "IConcatenationLayer",
    "IConstantLayer", "IConvolutionLayer", "ICudaEngine", "ICumulativeLayer", "IElementWiseLayer", "IExecutionContext",
    "IFillLayer", "IGatherLayer", "IHostMemory", "IIdentityLayer", "ILayer", "ILogger", "IMatrixMultiplyLayer",
    "INetworkDefinition", "IOptimizationProfile", "IPoolingLayer", "IReduceLayer", "IScaleLayer", "IScatterLayer",
    "ISelectLayer", "IShapeLayer", "IShuffleLayer", "ISliceLayer", "ISoftMaxLayer", "ITensor", "ITimingCache",
    "ITopKLayer", "IUnaryLayer", "LayerType", "Logger", "MatrixOperation", "MemoryPoolType",
    "NetworkDefinitionCreationFlag", "Permutation", "PoolingType", "ReduceOperation", "Runtime", "SampleMode",
    "ScaleMode", "ScatterMode", "TensorIOMode", "TensorLocation", "TopKOperation", "UnaryOperation", "Weights",
]  # fmt: skip

# The bindings' version whose names and rules these are; the suffix says that nothing of it is real.
__version__ = "11.4.0+simulator"
