"""What TensorRT is told of a network, call by call: all of the network that its engine follows from.

The key of a kept engine is made of this rather than of the program: a lowering that is changed tells TensorRT another
thing of the same program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


class Transcript:
    """The calls in order, tensors by their names, and the arrays of the weights, which TensorRT reads as it builds."""

    def __init__(self, trt: Any) -> None:
        self._trt = trt
        self._calls: list[str] = []
        self._arrays: list[np.ndarray[Any, Any]] = []

    def add(self, call: str, *given: Any) -> None:
        """Add a call with what it is given: tensors, enums, numbers, names, arrays, and what is made of these."""
        self._calls.append(json.dumps([call, *map(self._said, given)]))

    def digest(self) -> str:
        """Return the SHA-256 of all calls, and of the bytes of the arrays, as hexadecimal digits."""
        found = hashlib.sha256("\n".join([*self._calls, "\0"]).encode())  # JSON has no NUL: here the arrays begin
        for array in self._arrays:
            found.update(array.reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def _said(self, value: Any) -> Any:
        """Return a value as JSON. Each kind has a form of its own: what differs for TensorRT differs here."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if isinstance(value, list | tuple):
            return [self._said(item) for item in value]
        if isinstance(value, Mapping):
            return {"of": [[key, self._said(item)] for key, item in value.items()]}
        if isinstance(value, self._trt.ITensor):
            return {"tensor": value.name}
        if isinstance(value, np.ndarray):
            self._arrays.append(value)
            return {"array": [value.dtype.str, *value.shape]}
        if isinstance(value, self._trt.Weights) and not value.size:
            return {"no weights of": value.dtype.name}
        if hasattr(type(value), "__members__"):
            return {type(value).__name__: value.name}
        raise TypeError(f"a transcript does not take {type(value).__name__}: {value!r}")
