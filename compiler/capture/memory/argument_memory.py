"""How the tensors of a call lie in memory, as far as a graph of values relies on it, and where their gradients go."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone.compiler.diagnostics import GuardError


def check_layouts(tensors: Sequence[torch.Tensor], examples: Sequence[torch.Tensor | None]) -> None:
    """GuardError unless every tensor lies in memory as its example did; None is one of a number."""
    for index, (tensor, example) in enumerate(zip(tensors, examples, strict=True)):
        if example is None:
            continue
        same = tensor.is_contiguous() if example.is_contiguous() else tensor.stride() == example.stride()
        if not same or tensor.storage_offset() != example.storage_offset():
            raise GuardError(f"tensor {index} lies in memory in another way than when compiled, and the program looks")


def check_separate(
    tensors: Sequence[torch.Tensor], mutated: Sequence[int], same: Sequence[tuple[int, int]] = ()
) -> None:
    """Raise GuardError when a tensor that is written to shares memory with another one, or its elements do.

    A graph has values, no memory: it cannot know that the other one changes too. ``same`` are pairs that were one
    tensor when the graph was made, which knows of them.
    """
    known = {pair for one, other in same for pair in ((one, other), (other, one))}
    spans = [_span(t) for t in tensors]
    for index in mutated:
        written = tensors[index]
        if written.numel() and any(s > 1 and not t for s, t in zip(written.shape, written.stride(), strict=True)):
            raise GuardError(f"the graph writes to argument {index}, whose elements are one in memory (a stride of 0)")
        low, high = spans[index]
        for other, (start, end) in enumerate(spans):
            if other != index and (other, index) not in known and max(low, start) < min(high, end):
                raise GuardError(f"arguments {other} and {index} of the graph share memory, and it writes to {index}")


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the one after its last."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return 0, 0
    start = tensor.data_ptr()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size()


def accumulate_gradient(tensor: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add to a leaf's ``grad`` as ``backward`` does; to be called without grad mode."""
    if not tensor.is_leaf:
        raise GuardError("the program computes the gradient of an argument, which is no leaf of autograd's graph")
    tensor.grad = gradient if tensor.grad is None else tensor.grad.add_(gradient)
