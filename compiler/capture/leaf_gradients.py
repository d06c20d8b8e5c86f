"""Gradients that a program leaves in ``grad``: backward is recorded like the rest, what it accumulates is a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler.diagnostics import Unsupported

_GRAD: Any = torch.Tensor.grad
_DATA: Any = torch.Tensor.data
_ACCESSORS = (_GRAD.__get__, _GRAD.__set__, _GRAD.__delete__)


def keep_data(func: Any) -> None:
    """Unsupported where ``func`` gives a tensor other memory: no tracer of PyTorch's sees that."""
    if func == _DATA.__set__:
        raise Unsupported("the program replaces the data of a tensor; write to it with copy_", stage="capture")


class WatchGradients(TorchFunctionMode):
    """Notes whose ``grad`` the program looks at or sets: a graph holds what it is only if it was None before.

    ``replaced`` are tensors that others stand for while the program runs: it must not get at them. ``known(tensor)``
    says that a tensor was recorded.
    """

    def __init__(self, replaced: Iterable[torch.Tensor], known: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.seen: set[int] = set()
        self._replaced = {id(t) for t in replaced}
        self._known = known

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._replaced and any(id(leaf) in self._replaced for leaf in pytree.tree_leaves((args, kwargs))):
            raise Unsupported(
                "the program reaches for a parameter past the module that has it, as an optimizer does; call the "
                "optimizer after the compiled function, and reach for parameters through the module",
                stage="capture",
            )
        keep_data(func)
        if func in _ACCESSORS:
            tensor = args[0]
            grad = _GRAD.__get__(tensor)
            if grad is not None and not self._known(grad):
                raise Unsupported("the program looks at a gradient from before; set it to None first", stage="capture")
            self.seen.add(id(tensor))
        return func(*args, **(kwargs or {}))


class KeepGradients:
    """Gives tensors that the program holds the ``grad`` back that they had when they were first met."""

    def __init__(self) -> None:
        self._had: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def meet(self, tensor: torch.Tensor) -> None:
        """Remember the gradient of a leaf."""
        with DisableTorchFunction():
            if tensor.requires_grad and tensor.is_leaf:
                self._had.append((tensor, tensor.grad))

    def left(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the tensors that have another gradient now, with it, and give them back what they had."""
        found = [(tensor, tensor.grad) for tensor, had in self._had if tensor.grad is not had]
        for tensor, had in self._had:
            if tensor.grad is not had:
                tensor.grad = had
        return [(tensor, grad) for tensor, grad in found if grad is not None]
