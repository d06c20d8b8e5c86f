"""The enums of the ``tensorrt`` module, with the values of the bindings 11.4 (a test compares them)."""

from __future__ import annotations

from enum import IntEnum


class DataType(IntEnum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10
    E8M0 = 11


class ElementWiseOperation(IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class UnaryOperation(IntEnum):
    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class ActivationType(IntEnum):
    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class PoolingType(IntEnum):
    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class ReduceOperation(IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class MatrixOperation(IntEnum):
    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class SampleMode(IntEnum):
    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class TopKOperation(IntEnum):
    MAX = 0
    MIN = 1


class FillOperation(IntEnum):
    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class GatherMode(IntEnum):
    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class ScaleMode(IntEnum):
    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class ScatterMode(IntEnum):
    ELEMENT = 0
    ND = 1


class CumulativeOperation(IntEnum):
    SUM = 0


class TensorIOMode(IntEnum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(IntEnum):
    DEVICE = 0
    HOST = 1


class NetworkDefinitionCreationFlag(IntEnum):
    STRONGLY_TYPED = 0
    PREFER_JIT_PYTHON_PLUGINS = 1
    PREFER_AOT_PYTHON_PLUGINS = 2


class BuilderFlag(IntEnum):
    """The flags that the runtime sets or clears; the real enum has more."""

    DISABLE_TIMING_CACHE = 5
    TF32 = 6
    STRICT_NANS = 23


class MemoryPoolType(IntEnum):
    WORKSPACE = 0


class LayerType(IntEnum):
    """The layers that the simulator has; the real enum has more."""

    CONVOLUTION = 0
    CAST = 1
    ACTIVATION = 2
    POOLING = 3
    SCALE = 5
    SOFTMAX = 6
    CONCATENATION = 8
    ELEMENTWISE = 9
    UNARY = 11
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    CONSTANT = 19
    IDENTITY = 20
    SLICE = 22
    SHAPE = 23
    SELECT = 30
    FILL = 31
    SCATTER = 37
    NORMALIZATION = 45
    CUMULATIVE = 49
