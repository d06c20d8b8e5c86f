"""Attributes that a program sets on tensors: of those that had none before, a call cannot leave any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler.capture.state import kinds

if TYPE_CHECKING:
    from torchstone.compiler.capture.state.heap import Heap


class SetAttributes:
    """Finds attributes on tensors that are no objects of the heap, and takes them off again."""

    def __init__(self) -> None:
        self._tensors: list[tuple[torch.Tensor, frozenset[Any]]] = []
        self._stand_ins: set[int] = set()
        self._names: kinds.Only = frozenset()

    def begin(self, heap: Heap, stand_ins: Mapping[int, Any]) -> None:
        """Look at what the program is given: the tensors of ``heap``, or what stands for them by their id."""
        self._names = heap.names_written
        if self._names is not None and not self._names:
            self._tensors, self._stand_ins = [], set()
            return
        known = {id(node.obj) for node in heap.nodes if node.kind is kinds.TENSOR}
        known |= {id(node.other) for node in heap.nodes if node.kind is kinds.TENSOR}
        held = [heap.tensor(slots[0]) for slots in heap.tensors.values()]
        tensors = [t for t in (*held, *stand_ins.values()) if id(t) not in known and not _is_wrapper(t)]
        self._tensors = [(t, frozenset(kinds.TENSOR.entries(t, None))) for t in tensors]
        self._stand_ins = {id(t) for t in tensors} | known

    def found(self, results: Sequence[Any]) -> str | None:
        """Return the name of an attribute that was set, on one of these tensors or on a result; None for none."""
        if self._names is not None and not self._names:
            return None
        nothing: frozenset[Any] = frozenset()
        new = [(t, nothing) for t in results if isinstance(t, torch.Tensor) and id(t) not in self._stand_ins]
        for tensor, had in (*self._tensors, *((t, had) for t, had in new if not _is_wrapper(t))):
            for name in kinds.TENSOR.entries(tensor, self._names):
                if name not in had:
                    return str(name)
        return None

    def end(self) -> None:
        """Take off what was set."""
        for tensor, had in self._tensors:
            for name in kinds.TENSOR.entries(tensor, self._names):
                if name not in had:
                    own: Any = tensor.__dict__
                    del own[name]
        self._tensors = []


def _is_wrapper(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is one of PyTorch's that keeps attributes of its own; a run before had plain ones."""
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)
