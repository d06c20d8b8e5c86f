"""Calls that write to their operands: which memory a call wrote to, and whether PyTorch says what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key, version
from torchstone.conformance.execution.memory import storage_as_row
from torchstone.conformance.program.tensor_storage import extent


class Memory:
    """The memory of some tensors, as it was when this was made."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._versions = [(tensor, version(tensor)) for tensor in tensors]
        rows = {storage_key(tensor): storage_as_row(tensor) for tensor in tensors}
        self._rows = {key: (row, row.clone()) for key, row in rows.items()}

    def written(self) -> set[int]:
        """Return the keys of the storages that were written to since. The kernels of batch norm count no version."""
        found = {storage_key(tensor) for tensor, was in self._versions if version(tensor) != was}
        return found | {key for key, (row, was) in self._rows.items() if not torch.equal(row, was)}

    def restore(self) -> None:
        """Undo what was written since."""
        for row, was in self._rows.values():
            row.copy_(was)


def is_writable(tensor: Tensor) -> bool:
    """Whether each element has a place of its own in memory, and is what lies there, not lazily negated or conjugated.

    Eager refuses to write to an expanded tensor, where it notices. Some kernels write to a negated one as to another.
    """
    if tensor.is_neg() or tensor.is_conj():
        return False
    reach = 0  # of the dims so far: the last place that their elements take
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return False
            reach += (size - 1) * step
    return True


def why_undefined(written: Sequence[Tensor], operands: Sequence[Tensor], elementwise: bool) -> str:
    """Return why PyTorch leaves open what a write gives, or an empty string; ``written`` are among the operands."""
    for tensor in written:
        if not is_writable(tensor):
            return "it writes to elements that lie in one place, or lazily"
        if any(other is not tensor and _overlap(tensor, other) for other in operands):
            return "it reads or writes, as another operand, what it writes to"
        if not elementwise and sum(other is tensor for other in operands) > 1:
            return "an operand that it writes to is given twice"
    return ""


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether the ranges of memory that two tensors lie in have a place in common."""
    if storage_key(one) != storage_key(other):
        return False
    begins = [tensor.storage_offset() * tensor.element_size() for tensor in (one, other)]
    ends = [extent(t.shape, t.stride(), int(t.storage_offset())) * t.element_size() for t in (one, other)]
    return max(begins) < min(ends)
