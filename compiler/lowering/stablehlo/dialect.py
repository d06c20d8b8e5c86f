"""The StableHLO dialect of the MLIR bindings: registered once a process, its version, its portable form."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.lowering.mlir_passes import pipelines

# The version that our programs are written in: what every consumer of this one or a later one can read.
VERSION = "1.9.0"

_REFINE = "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),canonicalize"


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


def signature(module: Any) -> Any:
    """Return the type of ``main``."""
    return _main(module).attributes["function_type"].value


def is_static(module: Any) -> bool:
    """Say whether all sizes of the arguments and results of ``main`` are known."""
    kind = signature(module)
    return all(t.has_static_shape for t in (*kind.inputs, *kind.results))


def of_sizes(module: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """Return a copy of a module for arguments of these sizes, by StableHLO's own passes."""
    copy = pipelines.parse(module)
    main = _main(copy)
    with mlir.context(), mlir.ir.Location.unknown():
        kind = main.attributes["function_type"].value
        types = [
            mlir.ir.RankedTensorType.get(list(s), t.element_type) for s, t in zip(shapes, kind.inputs, strict=True)
        ]
        # Not by stablehlo-refine-arguments: in one process it adds up the types that it was given each time.
        main.attributes["function_type"] = mlir.ir.TypeAttr.get(mlir.ir.FunctionType.get(types, kind.results))
        for argument, refined in zip(main.regions[0].blocks[0].arguments, types, strict=True):
            argument.set_type(refined)
    pipelines.run_text(_REFINE, copy, label="stablehlo-refine-shapes")
    return copy


def _main(module: Any) -> Any:
    functions = [f.operation for f in module.body.operations]
    return next(f for f in functions if f.attributes["sym_name"].value == "main")


def portable(module: Any, version: str = VERSION) -> bytes:
    """Return a module in the form that other versions of StableHLO read: VHLO bytecode.

    Raises TorchstoneError (stage ``lower``) when ``version`` lacks what the module uses, or is none.
    """
    try:
        return bytes(register().serialize_portable_artifact(module, version))
    except ValueError as error:
        raise TorchstoneError(f"StableHLO {version} cannot say this program: {error}", stage="lower") from error
