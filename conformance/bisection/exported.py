"""The stages of backends that begin with torch.export: the exported program is run by PyTorch, and then compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends.export_support import capture
from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.bisection.rungs import Rung


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of a backend that says it begins with torch.export; none for any other."""
    if getattr(backend, "begins_with", "") != "torch.export":
        return ()
    return (
        Rung("torch.export", "the exported program, run by PyTorch", _Exported),
        Rung(backend.name, f"{backend.name}, with the decompositions it asks for", lambda: backend),
    )


class _Exported:
    """torch.export, and PyTorch's kernels."""

    name = "torch.export"
    uses_eager_kernels = True

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

        exported = capture(fn, args, dims=dims)
        module = exported.program.module()
        numbers = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

        def run(*tensors: Tensor) -> Any:
            given = zip(module(*tensors), exported.outputs, strict=True)
            return exported.finish(tensors, [value for value, want in given if isinstance(want, numbers)])

        return run
