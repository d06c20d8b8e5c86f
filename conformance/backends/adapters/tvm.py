"""Apache TVM on the CPU, by Relax's own import of exported programs.

What the importer has no conversion for is ``unsupported``. Every verdict carries the functions that the virtual
machine's code calls, after TVM's fusions.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import Exporting, Layer
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported, counted

if TYPE_CHECKING:
    from torch import Tensor

_DECLINED = re.compile(
    r"[Uu]nsupported|not supported|[Nn]ot implemented|NotImplemented|does not support|only support|no Relax outputs"
)
_OP = re.compile(r"function types \['([\w.]+)'")
ALIGNMENT = 64  # bytes
_CALL = re.compile(r"^ +call +(\S+) +in:", re.MULTILINE)


class Tvm(Exporting):
    name = "tvm"
    executors = ("tvm",)
    packages = (("apache-tvm", "tvm"),)

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return _Executable(self.captured(fn, args))

    def decompositions(self) -> Any:
        """Return what Relax's import has PyTorch decompose: all that PyTorch does by itself."""
        import torch

        return torch.export.default_decompositions()

    def layers(self) -> tuple[Layer, ...]:
        """Return the imported Relax, without TVM's fusions."""
        return (Layer("Relax", "the imported Relax, each of its ops a function of its own", self._apart),)

    def _apart(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        import tvm

        with tvm.transform.PassContext(disabled_pass=["FuseOps", "FuseTIR"]):
            return _Executable(self.captured(fn, args))


class _Executable:
    """A Relax virtual machine as a callable with the program's results."""

    def __init__(self, exported: Exported) -> None:
        import tvm
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program

        self.exported = exported
        with warnings.catch_warnings(), composite_ops_known():
            warnings.simplefilter("ignore")
            try:
                module = from_exported_program(exported.program)
            except Exception as error:
                raise _failure(error, "lower") from error
            try:
                executable = tvm.compile(module, target="llvm")
                self.machine = relax.VirtualMachine(executable, tvm.cpu())
            except Exception as error:
                raise _failure(error, "compile") from error
        called = [name for name in _CALL.findall(executable.as_text()) if not name.startswith("vm.builtin.")]
        self.evidence = {"ran": {"tvm": counted(called)} if called else {}}

    def __call__(self, *args: Tensor) -> Any:
        import torch
        from tvm.runtime import from_dlpack

        try:
            given = [from_dlpack(_aligned(tensor)) for tensor in args]
            results = [torch.from_dlpack(value).clone() for value in self.machine["main"](*given)]
        except Exception as error:
            raise _failure(error, "run") from error
        return self.exported.finish(args, results)


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor in row-major memory that starts where TVM wants it to."""
    tensor = tensor.detach().contiguous().resolve_neg()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _failure(error: Exception, stage: str) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by the message."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if not _DECLINED.search(text):
        return BackendError(text[:500], stage)
    op = _OP.search(text)
    return BackendUnsupported(text[:500], stage, op=op.group(1) if op else "")
