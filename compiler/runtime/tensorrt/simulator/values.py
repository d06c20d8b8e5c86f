"""``Dims``, ``Permutation``, ``Weights``, the loggers, and what inference knows of a tensor."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from torchstone.compiler.runtime.tensorrt.rules import MAX_DIMS
from torchstone.compiler.runtime.tensorrt.simulator.enums import DataType

_NUMPY = {
    DataType.FLOAT: np.float32,
    DataType.HALF: np.float16,
    DataType.INT8: np.int8,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.BOOL: np.bool_,
    DataType.UINT8: np.uint8,
}
_TORCH = {
    DataType.FLOAT: "float32", DataType.HALF: "float16", DataType.BF16: "bfloat16", DataType.INT32: "int32",
    DataType.INT64: "int64", DataType.BOOL: "bool", DataType.INT8: "int8", DataType.UINT8: "uint8",
}  # fmt: skip


class InvalidNetwork(Exception):
    """A documented rule is broken. Never leaves the simulator: it is logged, and the call fails as TensorRT's does."""


class Dims(tuple[int, ...]):
    """Sizes; -1 is a size known at run time. ValueError above 8."""

    MAX_DIMS = MAX_DIMS

    def __new__(cls, shape: Iterable[Any] = ()) -> Dims:
        sizes = tuple(int(s) for s in shape)
        if len(sizes) > MAX_DIMS:
            raise ValueError(f"Input length {len(sizes)}. Max expected length is {MAX_DIMS}")
        return super().__new__(cls, sizes)


class Permutation(Dims):
    """A permutation of dims."""


class Weights:
    """Constant values, held by reference: the array must stay alive and unchanged until the engine is built."""

    def __init__(self, a: Any = DataType.FLOAT, ptr: int = 0, count: int = 0) -> None:
        if isinstance(a, DataType):
            self.dtype, self.size = a, count
            width = torch_dtype(a).itemsize
            self._bytes: Any = (ctypes.c_char * (count * width)).from_address(ptr) if count else b""
            return
        if not isinstance(a, np.ndarray) or not a.flags.c_contiguous:
            raise TypeError("Weights: expects a contiguous numpy array, or type, ptr and count")
        found = [t for t, n in _NUMPY.items() if n == a.dtype.type]
        if not found:
            raise TypeError(f"Could not resolve numpy data type {a.dtype} to an equivalent TensorRT data type")
        self.dtype, self.size, self._bytes = found[0], a.size, a.data

    @classmethod
    def _of(cls, dtype: DataType, size: int, data: bytes) -> Weights:
        weights = cls(dtype)
        weights.size, weights._bytes = size, data
        return weights

    @property
    def nbytes(self) -> int:
        return self.size * torch_dtype(self.dtype).itemsize

    def tensor(self, shape: tuple[int, ...]) -> Any:
        """Return a copy as a torch tensor."""
        import torch

        data = bytearray(self._bytes)
        if not data:
            return torch.empty(shape, dtype=torch_dtype(self.dtype))
        return torch.frombuffer(data, dtype=torch_dtype(self.dtype)).reshape(shape)


class ILogger:
    """Receives every message; derive from it and override ``log``."""

    class Severity(IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3
        VERBOSE = 4

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = Severity

    def __init__(self) -> None:
        pass

    def log(self, severity: ILogger.Severity, msg: str) -> None:
        raise NotImplementedError


class Logger(ILogger):
    """Writes messages at least as severe as ``min_severity`` to standard error."""

    def __init__(self, min_severity: ILogger.Severity = ILogger.WARNING) -> None:
        super().__init__()
        self.min_severity = min_severity

    def log(self, severity: ILogger.Severity, msg: str) -> None:
        if severity <= self.min_severity:
            print(f"[TRT simulator] [{severity.name[0]}] {msg}", file=sys.stderr)


class Folded:
    """A value known at build time, computed when it is first read: most are never read, and a read needs torch."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    @cached_property
    def value(self) -> Any:
        return self._compute()


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a tensor without running the network: its sizes (-1: run time), type, and value if constant.

    Only small integer tensors carry a value: those that can be shape tensors.
    """

    shape: tuple[int, ...]
    dtype: DataType
    folded: Folded | None = None

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def torch_dtype(dtype: DataType) -> Any:
    """Return the torch dtype that computes ``dtype``."""
    import torch

    return getattr(torch, _TORCH[dtype])


def require(condition: bool, message: str) -> None:
    """Raise InvalidNetwork unless the documented rule holds."""
    if not condition:
        raise InvalidNetwork(message)
