"""Programs whose parameters stay: what depends on them alone was computed when the program was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler._torch.tensors import version
from torchstone.compiler.capture.program import Captured
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir import Graph
from torchstone.compiler.lowering.target import Kernel
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.fold_scales import fold_scales
from torchstone.compiler.transforms.freeze import freeze


class Prepared:
    """A captured program with the tensors that it holds and only reads taken for constants.

    ``graph`` is what is left to compile; the arguments that were prepared are ``known``.
    """

    def __init__(self, captured: Captured, flat: Graph) -> None:
        first = sum(1 for _ in captured.tensors())
        written = {*captured.mutated, *captured.gradients}
        stays = {first + i for i in range(len(captured.captures)) if first + i not in written}
        split = freeze(flat, stays)
        self._kept = split.kept
        self._held = {place: captured.captures[place - first] for place in sorted(stays)}
        self._names = {place: flat.args[place].name for place in stays}
        self._versions = {place: _version(t) for place, t in self._held.items()}
        with torch.no_grad():
            made = evaluate_graph(split.prologue, [t.detach() for t in self._held.values()])
        for arg, tensor in zip(split.graph.args[len(self._kept) :], made, strict=True):
            arg.known = tensor.contiguous()
        with torch.no_grad():
            self.graph = fold_scales(split.graph)
        self._made = [arg.known for arg in self.graph.args[len(self._kept) :]]

    def kernel(self, kernel: Kernel) -> Kernel:
        """Return the kernel of the whole program, given that of what was left."""

        def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
            for place, held in self._held.items():
                if tensors[place] is not held or _version(held) != self._versions[place]:
                    raise GuardError(
                        f"%{self._names[place]} was frozen when the program was compiled, and has changed: compile it "
                        "again, or without freeze"
                    )
            return kernel([*(tensors[place] for place in self._kept), *self._made])

        return run


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or given other memory."""
    return (0 if tensor.is_inference() else version(tensor), tensor.data_ptr())
