"""OpenXLA's CPU compiler, out of the jaxlib wheel, by way of torch-mlir's StableHLO.

What torch-mlir has no StableHLO for, and what XLA does not implement, is ``unsupported``. Every verdict carries the
instructions of the executable that XLA made, after its fusions.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from torchstone.compiler.runtime.xla import execute, load
from torchstone.conformance.backends.adapters.torch_mlir import TorchMlirStablehlo
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported, counted

if TYPE_CHECKING:
    from torch import Tensor

_IMPORTER = "torch_mlir.extras.fx_importer"
_DECLINED = re.compile(r"UNIMPLEMENTED|not implemented|[Uu]nsupported|not supported")


class Xla(TorchMlirStablehlo):
    name = "xla"
    shares_with = "torch-mlir-stablehlo"
    executors = ("xla",)
    packages = (("jax", "jax"), ("jaxlib", "jaxlib"), ("torch-mlir", "torch_mlir.fx"))
    install = ""

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        with mock.patch.object(importlib.import_module(_IMPORTER), "DenseResourceElementsAttr", _InPlace):
            exported, module = self.imported(fn, args)
        return _Executable(exported, module.operation.get_asm(enable_debug_info=False))


class _InPlace:
    """Constants in the text of the module: XLA takes none from MLIR's resources, where torch-mlir puts them."""

    @staticmethod
    def get_from_buffer(array: Any, name: str, tensor: Any) -> Any:
        from torch_mlir.ir import DenseElementsAttr  # pyright: ignore[reportAttributeAccessIssue]

        return DenseElementsAttr.get(array, type=tensor.element_type, shape=tensor.shape)


class _Executable:
    """A loaded executable of XLA's as a callable with the program's results."""

    def __init__(self, exported: Exported, stablehlo: str) -> None:
        self.exported = exported
        try:
            self.executable = load(stablehlo)
        except Exception as error:
            raise _failure(error, "compile") from error
        text = "\n".join(module.to_string() for module in self.executable.hlo_modules())
        ops = counted(_instructions(text))
        self.evidence = {"ran": {"xla": ops} if ops else {}}

    def __call__(self, *args: Tensor) -> Any:
        try:
            results = execute(self.executable, args)
        except Exception as error:
            raise _failure(error, "run") from error
        return self.exported.finish(args, results)


def _instructions(hlo: str) -> Iterator[str]:
    """What the entry computations execute: each fusion by its name, a call out of XLA by its target."""
    for entry in re.findall(r"^ENTRY .*?^}", hlo, re.MULTILINE | re.DOTALL):
        for name, opcode, rest in re.findall(r"^\s+(?:ROOT )?%([\w.-]+) = .*? ([\w-]+)\((.*)$", entry, re.MULTILINE):
            if opcode == "fusion":
                yield re.sub(r"(\.\d+)+$", "", name)
            elif opcode == "custom-call":
                yield re.findall(r'custom_call_target="([^"]*)"', rest)[0]
            elif opcode not in _COMPUTE_NOTHING:
                yield opcode


_COMPUTE_NOTHING = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


def _failure(error: Exception, stage: str) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by the message."""
    text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return BackendUnsupported(text, stage) if _DECLINED.search(text) else BackendError(text, stage)
