"""The stages of backends that begin with torch.export.

The exported program is run by PyTorch, as it is and decomposed. Then comes what the compiler makes of it, as far as
somebody else can run that: an exported model by a reference evaluator, say. Then another backend goes on from what the
two have in common. What is left is the backend's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends.export_support import capture
from torchstone.conformance.backends.exporting import Layer
from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.backends.registry import load
from torchstone.conformance.bisection.rungs import Rung


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of a backend that says it begins with torch.export; none for any other."""
    if getattr(backend, "begins_with", "") != "torch.export":
        return ()
    found = [Rung("torch.export", "the exported program, run by PyTorch", _Exported)]
    tables = _tables(backend)
    if tables is not None:
        what = f"the same with the decompositions that {backend.name} asks for"
        found.append(Rung("decompositions", what, lambda: _Exported(tables())))
    found += [Rung(layer.name, layer.what, lambda one=layer: one) for layer in _layers(backend)]
    other = getattr(backend, "shares_with", "")
    if other and load(other).available().ok:
        what = f"what {backend.name} shares with {other}, by way of {other}"
        found.append(Rung(f"shared with {other}", what, lambda: load(other)))
    return (*found, Rung(backend.name, backend.name, lambda: backend))


def _tables(backend: Any) -> Callable[[], Sequence[Mapping[Any, Any]]] | None:
    """What makes the tables that a backend has its programs decomposed by; None if it says nothing of it."""
    if hasattr(backend, "tables"):
        return backend.tables
    table = getattr(backend, "decompositions", None)
    return None if table is None else lambda: [table()]


def _layers(backend: Any) -> Sequence[Layer]:
    return backend.layers() if hasattr(backend, "layers") else ()


class _Exported:
    """torch.export, decomposed by tables in order if there are some, and PyTorch's kernels."""

    name = "torch.export"
    uses_eager_kernels = True

    def __init__(self, tables: Sequence[Mapping[Any, Any]] = ()) -> None:
        self.tables = tables

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

        exported = capture(fn, args, None, dims)
        for table in self.tables:
            exported = exported.decomposed(table)
        module = exported.program.module()
        numbers = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

        def run(*tensors: Tensor) -> Any:
            given = zip(module(*tensors), exported.outputs, strict=True)
            return exported.finish(tensors, [value for value, want in given if isinstance(want, numbers)])

        return run
