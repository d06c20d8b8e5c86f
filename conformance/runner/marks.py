"""Where a worker is within a case, readable after it died: one shared byte, written at a cost of nanoseconds."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from torchstone.conformance.verdict import Stage

if TYPE_CHECKING:
    from torch import Tensor

    from torchstone.conformance.backends.base import Availability, Backend

OUTSIDE = 0  # the backend has not been called for this case: eager, the oracle or the harness is at work
STAGES = (None, Stage.COMPILE, Stage.RUN, Stage.COMPARE)
BATCH = 4  # many cases are being compiled together: whose fault it is cannot be told


def create() -> int:
    """Return the descriptor of a fresh byte, to be passed to a worker."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        return os.dup(file.fileno())


def read(descriptor: int) -> Stage | None:
    """Return the stage that the worker was in; None before the backend was first called."""
    (value,) = os.pread(descriptor, 1, 0)
    return STAGES[value] if value < len(STAGES) else None


def in_batch(descriptor: int) -> bool:
    """Say whether the worker was compiling many cases together."""
    return os.pread(descriptor, 1, 0) == bytes([BATCH])


class Marked:
    """A backend that leaves a mark at each step; everything else is the backend's own."""

    def __init__(self, backend: Backend, descriptor: int) -> None:
        self._backend = backend
        self._byte = mmap.mmap(descriptor, mmap.PAGESIZE)
        self.name = backend.name
        self.batch: int = getattr(backend, "batch", 1)
        if hasattr(backend, "compile_dynamic"):
            self.compile_dynamic = self._compile_dynamic

    def available(self) -> Availability:
        return self._backend.available()

    def versions(self) -> Mapping[str, str]:
        return self._backend.versions()

    def begin(self) -> None:
        """Say that a new case begins."""
        self._byte[0] = OUTSIDE

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        self._byte[0] = 1
        return self._marked(self._backend.compile(fn, args))

    def _compile_dynamic(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: Any) -> Callable[..., Any]:
        self._byte[0] = 1
        return self._marked(cast("Any", self._backend).compile_dynamic(fn, args, dims))

    def compile_many(self, programs: Iterable[Any]) -> list[Callable[..., Any] | Exception]:
        self._byte[0] = BATCH
        found = cast("Any", self._backend).compile_many(programs)
        return [one if isinstance(one, Exception) else self._marked(one) for one in found]

    def _marked(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        byte = self._byte

        def run(*tensors: Tensor) -> Any:
            byte[0] = 2
            result = compiled(*tensors)
            byte[0] = 3
            run.__dict__["evidence"] = getattr(compiled, "evidence", {})  # some is known after the call only
            return result

        return run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
