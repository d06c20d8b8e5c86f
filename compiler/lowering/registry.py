"""The target table."""

from __future__ import annotations

from importlib import import_module

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.lowering.target import Target

TARGETS: dict[str, str] = {
    "linalg": "torchstone.compiler.lowering.linalg",
    "tosa": "torchstone.compiler.lowering.tosa",
    "tensorrt": "torchstone.compiler.lowering.tensorrt",
    "evaluator": "torchstone.compiler.lowering.evaluator",
}


def find_target(name: str) -> Target:
    """Return the target of this name, importing its lowering; TorchstoneError with a suggestion for an unknown name."""
    if name not in TARGETS:
        raise TorchstoneError(f'no target "{name}"{did_you_mean(name, TARGETS)}; targets: {", ".join(TARGETS)}')
    return import_module(TARGETS[name]).TARGET
