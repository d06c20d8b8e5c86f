"""Ops of PyTorch's own whose kernels are written in ATen: the program is recorded as what they call."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torchstone.compiler._torch.operators import call_for_any_device

# Of the quantizers of torch.export.
NAMESPACES = frozenset({"quantized_decomposed"})


class WrittenOps:
    """Calls such ops under the mode that records."""

    def __init__(self) -> None:
        self._running = 0

    def call(self, mode: AbstractContextManager[Any], func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what an op gives; NotImplemented for one that is to be recorded itself."""
        if func.namespace in NAMESPACES:
            self._running += 1
            try:
                with mode:
                    return call_for_any_device(func, *args, **kwargs)
            finally:
                self._running -= 1
        if not self._running:
            return NotImplemented
        with mode:  # what such a kernel calls comes as it is, and not as what autograd makes of it
            return func.decompose(*args, **kwargs)
