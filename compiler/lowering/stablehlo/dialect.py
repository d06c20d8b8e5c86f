"""The StableHLO dialect of the MLIR bindings: registered once a process, its version, its portable form."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError

# The version that our programs are written in: what every consumer of this one or a later one can read.
VERSION = "1.9.0"


@cache
def register() -> Any:
    """Let the shared context read StableHLO, and return the bindings of the dialect.

    Raises TorchstoneError (stage ``lower``) where the MLIR bindings come without it.
    """
    provider = mlir.bindings()
    try:
        stablehlo = importlib.import_module(f"{provider.provider}._mlir_libs._stablehlo")
    except ImportError:
        raise TorchstoneError(
            f"the MLIR bindings of {provider.provider} have no StableHLO; install those that do with: "
            "pip install torch-mlir",
            stage="lower",
        ) from None
    stablehlo.register_dialect(provider.shared_context)
    stablehlo.register_interpreter_dialect(provider.shared_context)
    stablehlo.register_stablehlo_passes()
    return stablehlo


def portable(module: Any, version: str = VERSION) -> bytes:
    """Return a module in the form that other versions of StableHLO read: VHLO bytecode.

    Raises TorchstoneError (stage ``lower``) when ``version`` lacks what the module uses, or is none.
    """
    try:
        return bytes(register().serialize_portable_artifact(module, version))
    except ValueError as error:
        raise TorchstoneError(f"StableHLO {version} cannot say this program: {error}", stage="lower") from error
