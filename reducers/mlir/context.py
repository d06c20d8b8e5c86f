"""The context that modules are read in: every dialect that the bindings have, and no threads, so that it can fork."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from torchstone.compiler import mlir


@cache
def shared_context() -> Any:
    """Return the context that this process reads modules in, and with it those that are forked from it.

    It knows upstream's dialects and passes, and torch-mlir's and StableHLO's where they are.
    """
    bindings = mlir.bindings()
    context = bindings.ir.Context()
    context.enable_multithreading(False)
    torch = _module(f"{bindings.provider}.dialects.torch")
    if torch is not None:
        torch.register_dialect(context)
    _stablehlo_passes(bindings.provider)
    return context


@cache
def _stablehlo_passes(provider: str) -> None:
    stablehlo = _module(f"{provider}._mlir_libs._stablehlo")
    if stablehlo is not None:
        stablehlo.register_stablehlo_passes()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
