"""What TensorRT documents about the data types of its layers: the one table, read by the lowering and the simulator.

Source: the operators documentation (``docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators``, 10.14) and the
comments of ``NvInfer.h``; where the two differ, or a cell could not be read, the smaller set stands. Names are those of
``tensorrt.DataType``. ``INT8`` and the narrower types are quantized values, never integers, and do not appear; neither
does ``UINT8``, which only a cast at the network's border may touch. There is no 64-bit float, no complex and no 16-bit
integer type at all.
"""

from __future__ import annotations

from torchstone.compiler.ir import DType

MAX_DIMS = 8
MAX_TOPK = 3840

# PyTorch's name of each dtype that a network tensor can have.
DATA_TYPES: dict[str, str] = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
}
# Narrower integers are carried by wider ones: the lowering keeps each value in their range.
CARRIERS: dict[str, str] = {"int8": "INT32", "uint8": "INT32", "int16": "INT32", "uint16": "INT32", "uint32": "INT64"}

SINGLE_HALF = frozenset({"FLOAT", "HALF"})
FLOATS = frozenset({"FLOAT", "HALF", "BF16"})
INTS = frozenset({"INT32", "INT64"})
BOOL = frozenset({"BOOL"})
NUMBERS = FLOATS | INTS
ANY = NUMBERS | BOOL

UNARY: dict[str, frozenset[str]] = {
    **dict.fromkeys(("EXP", "LOG", "SQRT", "RECIP", "SIN", "COS", "CEIL", "FLOOR", "NEG"), FLOATS),
    **dict.fromkeys(("TAN", "SINH", "COSH", "ASIN", "ACOS", "ATAN", "ASINH", "ACOSH", "ATANH"), SINGLE_HALF),
    **dict.fromkeys(("ERF", "ROUND", "ISINF", "ISNAN"), SINGLE_HALF),
    **dict.fromkeys(("ABS", "SIGN"), SINGLE_HALF | INTS),
    "NOT": BOOL,
}

ELEMENTWISE: dict[str, frozenset[str]] = {
    **dict.fromkeys(("SUM", "PROD", "MAX", "MIN", "SUB", "DIV", "FLOOR_DIV", "EQUAL", "GREATER", "LESS"), NUMBERS),
    "POW": FLOATS,
    **dict.fromkeys(("AND", "OR", "XOR"), BOOL),
}
COMPARISONS = frozenset({"EQUAL", "GREATER", "LESS"})

LAYERS: dict[str, frozenset[str]] = {
    "Activation": FLOATS,
    "Cast": ANY,
    "Concatenation": ANY,
    "Constant": NUMBERS,  # "This layer does not support boolean and uint8 types."
    "Convolution": FLOATS,
    "Cumulative": NUMBERS,
    "Gather": ANY,
    "Identity": ANY,
    "MatrixMultiply": FLOATS,
    "Normalization": FLOATS,
    "Pooling": FLOATS,
    "Reduce": NUMBERS,  # IReduceLayer: "a reduction across a non-bool tensor"
    "Scale": SINGLE_HALF,
    "Scatter": NUMBERS,
    "Select": ANY,
    "Shape": ANY,
    "Shuffle": ANY,
    "Slice": ANY,
    "SoftMax": FLOATS,
    "TopK": NUMBERS,
}
FILL: dict[str, frozenset[str]] = {
    "LINSPACE": frozenset({"INT32", "INT64", "FLOAT"}),
    "RANDOM_UNIFORM": SINGLE_HALF,
    "RANDOM_NORMAL": SINGLE_HALF,
}


def carrier(dtype: DType) -> str:
    """Return the name of the ``tensorrt.DataType`` that holds the values of ``dtype``; KeyError where none does."""
    return DATA_TYPES[dtype.name] if dtype.name in DATA_TYPES else CARRIERS[dtype.name]


def data_type(dtype: DType) -> str | None:
    """Return the name of the ``tensorrt.DataType`` that holds the values of ``dtype``, or None."""
    return DATA_TYPES.get(dtype.name) or CARRIERS.get(dtype.name)
