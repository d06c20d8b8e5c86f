"""A kernel that MLIR's own passes make: what the lowering wrote, without the passes and the code of our CPU runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch

from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.cpu import RETURNED_BUFFERS, RETURNED_LLVM, CpuOptions
from torchstone.compiler.lowering.mlir_passes.unfused import separate_empty_tensors
from torchstone.compiler.runtime.cpu import allocating_kernel
from torchstone.compiler.runtime.cpu.bridge import torch_dtype

# Nothing is fused and nothing shared: a module is bufferized as it is written.
_AS_WRITTEN = (
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},"
    "buffer-deallocation-pipeline,convert-bufferization-to-memref"
)

# Contractions are written in vectors, which no importer writes.
_MEMORY = "finalize-memref-to-llvm"
_VECTORS = "func.func(convert-vector-to-scf)," + pipelines.PIPELINES["llvm-returned"].replace(
    _MEMORY, f"convert-vector-to-llvm,{_MEMORY}"
)


def _bufferize(module: Any, options: CpuOptions) -> Any:
    separate_empty_tensors(module, options.provider)
    pipelines.run_text(_AS_WRITTEN, module, label="one-shot-bufferize", provider=options.provider)
    return module


def _to_llvm(module: Any, options: CpuOptions) -> Any:
    pipelines.run_text(_VECTORS, module, label="llvm", provider=options.provider)
    return module


_BUFFERS = RETURNED_BUFFERS.with_run("returned-buffers", _bufferize)
_LLVM = RETURNED_LLVM.with_run("llvm-returned", _to_llvm)


class PlainKernel:
    """Stands in for ``CpuKernel``: the same module on the same tensors, by upstream's passes, without optimization.

    Raises TorchstoneError (stage ``compile``) for a module that these passes do not take.
    """

    def __init__(
        self, module: Any, *, inputs: Sequence[Any], results: Sequence[Any], entry: str = "main", provider: Any = None,
        **how: Any,
    ) -> None:  # fmt: skip
        dtypes = [torch_dtype(result.dtype) for result in results]
        with mock.patch.multiple(allocating_kernel, RETURNED_BUFFERS=_BUFFERS, RETURNED_LLVM=_LLVM):
            self._kernel = allocating_kernel.load_returning(
                module, entry=entry, result_dtypes=dtypes, provider=provider
            )
        self.llvm = self._kernel.llvm

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        kinds = [parameter.dtype for parameter in self._kernel.inputs]
        return self._kernel([_in_memory(tensor, kind) for tensor, kind in zip(tensors, kinds, strict=True)])


def _in_memory(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """The tensor as the module has it: a bool is a byte there, and bfloat16 the bits of an integer."""
    return tensor.contiguous().view(kind) if tensor.dtype.itemsize == kind.itemsize else tensor
