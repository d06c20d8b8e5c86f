"""Tensors in the memory of NumPy's arrays and Python's buffers: a graph reads it at each call, and writes to none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.tensors import version
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.heap import Heap
from torchstone.compiler.diagnostics import Unsupported

# Functions that no mode sees, by the module that has them.
_UNSEEN = ((torch, "from_numpy"), (torch, "frombuffer"), (torch, "from_file"), (torch, "from_dlpack"))
_SEEN = frozenset({"as_tensor", "asarray"})


class _Apart(TorchFunctionMode):
    """Gives a program copies of the tensors that it makes of other memory, and puts them into ``made``."""

    def __init__(self, made: list[torch.Tensor]) -> None:
        super().__init__()
        self._made = made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        data = args[0] if args else next(iter((kwargs or {}).values()), None)
        if getattr(func, "__name__", "") not in _SEEN or isinstance(data, torch.Tensor | list | tuple | int | float):
            return out
        with DisableTorchFunction():
            return self.copy(out)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy that is known."""
        self._made.append(tensor.clone())
        return self._made[-1]


@contextlib.contextmanager
def memory_apart(made: list[torch.Tensor]) -> Iterator[None]:
    """In the block, tensors that share memory with arrays are copies, which are put into ``made``."""
    made.clear()
    kept = [(module, name, getattr(module, name)) for module, name in _UNSEEN]
    with _Apart(made) as apart:

        def copying(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: apart.copy(function(*args, **kwargs))

        for module, name, function in kept:
            setattr(module, name, copying(function))
        try:
            yield
        finally:
            for module, name, function in kept:
                setattr(module, name, function)


def written(made: Sequence[torch.Tensor]) -> bool:
    """Say whether one of these copies, or a view of it, has been written to."""
    with DisableTorchFunction():
        return any(map(version, made))


def check_memory(heap: Heap, changed: set[int], tensors: Sequence[tuple[torch.Tensor, bool]]) -> None:
    """Unsupported where a tensor and an array are one in memory, and the program writes to it in one way or the other.

    ``tensors`` are those of the caller, and whether they are written to; ``changed`` are the objects that change.
    """
    for number, node in enumerate(heap.nodes):
        if node.kind is not kinds.ARRAY:
            continue
        low, high = _span(node.obj)
        for tensor, writes in tensors:
            if (writes or number in changed) and max(low, _start(tensor)) < min(high, _end(tensor)):
                why = f"the program writes to memory that {node.label} and a tensor share"
                raise Unsupported(why, stage="capture")


def _start(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _end(tensor: torch.Tensor) -> int:
    return _start(tensor) + tensor.untyped_storage().nbytes()


def _span(array: Any) -> tuple[int, int]:
    """Return the addresses of an array's first byte and of the one after its last."""
    if hasattr(array, "__array_interface__"):
        import numpy as np

        return np.lib.array_utils.byte_bounds(array)
    with memoryview(array) as view:
        size = view.nbytes
    if not size:
        return 0, 0
    start = torch.frombuffer(array, dtype=torch.uint8).data_ptr()
    return start, start + size
