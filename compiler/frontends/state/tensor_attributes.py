"""Attributes that a program sets on tensors: of those that had none before, a call cannot leave any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler.frontends.state import kinds

if TYPE_CHECKING:
    from torchstone.compiler.frontends.state.heap import Heap


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
        tensors = [t for t in (*held, *stand_ins.values()) if isinstance(t, torch.Tensor) and id(t) not in known]
        self._tensors = [(t, frozenset(kinds.TENSOR.entries(t, None))) for t in tensors]
        self._stand_ins = {id(t) for t in tensors} | known

    def found(self, results: Sequence[Any]) -> str | None:
        """Return the name of an attribute that was set, on one of these tensors or on a result; None for none."""
        if self._names is not None and not self._names:
            return None
        for tensor, had in self._tensors:
            for name in kinds.TENSOR.entries(tensor, self._names):
                if name not in had and not _is_of_a_class(tensor, name):
                    return str(name)
        for leaf in results:
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._stand_ins:
                for name in kinds.TENSOR.entries(leaf, self._names):
                    if not _is_of_a_class(leaf, name):
                        return str(name)
        return None

    def end(self) -> None:
        """Take off what was set."""
        for tensor, had in self._tensors:
            for name in kinds.TENSOR.entries(tensor, self._names):
                if name not in had:
                    del tensor.__dict__[name]
        self._tensors = []


def _is_of_a_class(tensor: torch.Tensor, name: Any) -> bool:
    """Say whether an attribute is one that PyTorch's own class of tensors keeps."""
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter) and name in _OWN


_OWN = frozenset(
    {
        "constant", "elem", "fake_device", "fake_mode", "item_memo", "nested_int_memo", "nonzero_memo", "pytype",
        "real_tensor", "reapply_views", "unique_consecutive_memo", "unique_memo", "_inference_mode_base_stack", "_mode",
    }
)  # fmt: skip
