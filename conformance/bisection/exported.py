"""The stages of backends that begin with torch.export.

The exported program is run by PyTorch, as it is and decomposed. Then another backend goes on from what the two have in
common: XLA and torchstone's runtime from torch-mlir's StableHLO, say. What is left is the backend's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends.export_support import capture
from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.backends.registry import load
from torchstone.conformance.bisection.rungs import Rung


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of a backend that says it begins with torch.export; none for any other."""
    if getattr(backend, "begins_with", "") != "torch.export":
        return ()
    found = [Rung("torch.export", "the exported program, run by PyTorch", _Exported)]
    table = getattr(backend, "decompositions", None)
    if table is not None:
        what = f"the same with the decompositions that {backend.name} asks for"
        found.append(Rung("decompositions", what, lambda: _Exported(table())))
    other = getattr(backend, "shares_with", "")
    if other and load(other).available().ok:
        what = f"what {backend.name} shares with {other}, by way of {other}"
        found.append(Rung(f"shared with {other}", what, lambda: load(other)))
    return (*found, Rung(backend.name, backend.name, lambda: backend))


class _Exported:
    """torch.export, decomposed by a table if there is one, and PyTorch's kernels."""

    name = "torch.export"
    uses_eager_kernels = True

    def __init__(self, decompositions: Mapping[Any, Any] | None = None) -> None:
        self.decompositions = decompositions

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._exported(fn, args, ())

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self._exported(fn, args, dims)

    def _exported(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: Any) -> Callable[..., Any]:

        exported = capture(fn, args, self.decompositions, dims)
        module = exported.program.module()
        numbers = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

        def run(*tensors: Tensor) -> Any:
            given = zip(module(*tensors), exported.outputs, strict=True)
            return exported.finish(tensors, [value for value, want in given if isinstance(want, numbers)])

        return run
