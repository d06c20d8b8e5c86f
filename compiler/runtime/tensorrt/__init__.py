"""TensorRT at run time: which API is driven, and how an engine is built and called.

``api()`` alone decides between the real ``tensorrt`` module and the simulator. Importing this package imports neither.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from torchstone.compiler.diagnostics import TorchstoneError

SWITCH = "TORCHSTONE_TENSORRT"


@dataclass(frozen=True, slots=True)
class Api:
    """The module that the lowering and the runtime speak to.

    ``real`` tells TensorRT from the simulator, ``reason`` why it is the one it is.
    """

    module: ModuleType
    real: bool
    reason: str

    def __str__(self) -> str:
        return f"{'TensorRT' if self.real else 'TensorRT simulator'} {self.module.__version__} ({self.reason})"


@lru_cache(maxsize=1)
def api() -> Api:
    """Return the real API where ``import tensorrt`` works and a CUDA GPU is there, else the simulator.

    ``TORCHSTONE_TENSORRT=simulator`` asks for the simulator, ``=real`` makes its absence an error: TorchstoneError
    (stage ``compile``) says what is missing.
    """
    wish = os.environ.get(SWITCH, "")
    if wish not in ("", "real", "simulator"):
        raise TorchstoneError(f"{SWITCH} must be real or simulator, got {wish!r}", stage="compile")
    if wish == "simulator":
        return _simulator(f"{SWITCH}=simulator")
    missing = _missing()
    if not missing:
        trt = import_module("tensorrt")
        return Api(trt, True, f"library and GPU found{', as asked' if wish else ''}")
    if wish == "real":
        raise TorchstoneError(f"no TensorRT: {missing}; unset {SWITCH} to use the simulator", stage="compile")
    return _simulator(missing)


def _simulator(reason: str) -> Api:
    return Api(import_module("torchstone.compiler.runtime.tensorrt.simulator"), False, reason)


def _missing() -> str:
    """Return what the real TensorRT lacks here, or an empty string."""
    try:
        import_module("tensorrt")
    except ModuleNotFoundError:
        return "the tensorrt package is not installed"
    except (ImportError, OSError) as error:
        return f"the tensorrt package does not load: {str(error).splitlines()[0]}"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "torch sees no CUDA GPU"
