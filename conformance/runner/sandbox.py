"""The sandbox between the harness and the backend in a worker: every call into the backend goes through here.

It leaves a mark at each step, puts right what a call leaves changed, and lets out only what the harness can handle:
exceptions that can be caught and printed, results that can be looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from torchstone.compiler._torch.functorch import is_wrapped
from torchstone.conformance.backends.protocol import BackendError
from torchstone.conformance.execution import current_call
from torchstone.conformance.execution.line_tracer import LineTracer, Ran
from torchstone.conformance.oracle.pytree import dense, flatten
from torchstone.conformance.runner import progress_mark
from torchstone.conformance.runner.process_state import ProcessState

if TYPE_CHECKING:
    from torchstone.conformance.backends.protocol import Availability, Backend

BUSY_SECONDS = 0.5  # of the harness's time in which other threads have been busy, before that is looked into
BUSY = 0.5
REST_SECONDS = 0.3
PLAIN_TENSORS = (Tensor, torch.nn.Parameter)


class Sandbox:
    """A backend as the worker calls it; whatever is not named here is the backend's own."""

    def __init__(self, backend: Backend, descriptor: int, *, watch: Mapping[str, list[str]] | None = None) -> None:
        self._backend = backend
        sources = getattr(backend, "sources", None) if watch is not None else None
        self._tracer = LineTracer(str(sources), known=watch or {}) if sources else None
        if self._tracer is not None:
            self._tracer.meet_living()
        self.traces = True  # whether to look at what runs, where there is anything to look at
        self.ran = Ran()  # what of the backend's own ran for the case at hand
        self._mark = progress_mark.ProgressMark(descriptor)
        self._mark.set(progress_mark.NOT_CALLED)
        current_call.listen(self._mark.tell_call)
        self._state = ProcessState()
        self._pid = os.getpid()
        self._threads = threading.active_count()
        self._files = _open_files()
        self._clock = _IdleClock()
        self.left_changed: dict[str, None] = {}  # what the case at hand has left changed, in order
        self.name = backend.name
        self.batch: int = getattr(backend, "batch", 1)
        if hasattr(backend, "compile_dynamic"):
            self.compile_dynamic = self._compile_dynamic
        if hasattr(backend, "compile_optimized"):
            self.compile_optimized = self._compile_optimized

    @property
    def sandboxed(self) -> Backend:
        """The backend itself."""
        return self._backend

    def available(self) -> Availability:
        return self._backend.available()

    def versions(self) -> Mapping[str, str]:
        return self._backend.versions()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    # -- calls --------------------------------------------------------------------------------------------------

    def begin(self, compiled: object = None) -> None:
        """Say that a new case begins; ``compiled`` is what ``compile_many`` gave for it, if it did."""
        self._mark.begin()
        self.left_changed = {}
        self.ran = Ran()
        self.ran.add(getattr(compiled, "ran", Ran()))

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return SandboxedExecutable(self, self.call(progress_mark.COMPILE, self._backend.compile, fn, args))

    def _compile_dynamic(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: Any) -> Callable[..., Any]:
        return SandboxedExecutable(
            self, self.call(progress_mark.COMPILE, cast("Any", self._backend).compile_dynamic, fn, args, dims)
        )

    def _compile_optimized(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        compile_optimized = cast("Any", self._backend).compile_optimized
        return SandboxedExecutable(self, self.call(progress_mark.COMPILE, compile_optimized, fn, args))

    def compile_many(self, programs: Iterable[Any]) -> list[Callable[..., Any] | Exception]:
        self.ran = Ran()
        ran: list[Ran] = []

        def one_by_one() -> Iterator[Any]:
            for program in programs:
                self._note_lines()
                ran.append(self.ran)
                self.ran = Ran()
                yield program

        found = self.call(progress_mark.BATCH, cast("Any", self._backend).compile_many, one_by_one())
        each = [*ran[1:], self.ran]
        for before in ran[:1]:
            each[0].add(before)
        out: list[Any] = []
        for one, of_one in zip(found, each, strict=False):
            good = printable_exception(one) if isinstance(one, BaseException) else SandboxedExecutable(self, one)
            good.__dict__["ran"] = of_one
            out.append(good)
        return out

    def _note_lines(self) -> None:
        if self._tracer is not None:
            self.ran.add(self._tracer.next_case())

    def call(self, mark: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call into the backend."""
        self._clock.stop()
        self._state.remember()
        self._mark.set(mark)
        try:
            with self._tracer.tracing() if self._tracer is not None and self.traces else contextlib.nullcontext():
                return function(*args)
        except SystemExit:
            raise
        except BaseException as error:
            self._mark.set(progress_mark.COMPARE)  # it has answered: what takes long from here on is the harness
            good = printable_exception(error)
            if good is error:
                raise
            raise good from None
        finally:
            if os.getpid() != self._pid:  # a child that the backend has forked, on its way into the harness
                os._exit(0)
            self._note_lines()
            self.left_changed |= dict.fromkeys(self._state.restore())
            self._clock.start()

    # -- afterwards ---------------------------------------------------------------------------------------------

    def spent(self) -> str:
        """Say why this process should not be given another case; an empty string if it may be."""
        if self._state.spent:
            return self._state.spent
        why_spent = getattr(self._backend, "spent", None)
        if why_spent is not None and (reason := why_spent()):
            return str(reason)
        if threading.active_count() > self._threads:
            return "threads were left running"
        if _open_files() > self._files + resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4:
            return "files were left open"
        if torch.is_inference_mode_enabled():
            return "inference mode was left on"
        return "threads were left busy" if self._clock.others_busy() else ""


class SandboxedExecutable:
    """What a backend has compiled; tells what it left changed in its evidence."""

    def __init__(self, sandbox: Sandbox, compiled: Any) -> None:
        self._sandbox = sandbox
        self._compiled = compiled

    def __call__(self, *tensors: Tensor) -> Any:
        result = self._sandbox.call(progress_mark.RUN, self._compiled, *tensors)
        self._sandbox._mark.set(progress_mark.COMPARE)
        return readable_result(result)

    @property
    def evidence(self) -> dict[str, Any]:
        """The callable's own, if it is what it should be."""
        try:
            own = dict(getattr(self._compiled, "evidence", None) or {})
            json.dumps(own)
        except Exception as error:
            own = {"evidence": f"not JSON: {type(error).__name__}"}
        return own | ({"left changed": list(self._sandbox.left_changed)} if self._sandbox.left_changed else {})


def printable_exception(error: BaseException) -> Exception:
    """The exception, if it is one that can be caught and printed; else one that tells of it."""
    try:
        text = str(error)
        attributes = [str(getattr(error, name, "")) for name in ("stage", "reason", "op")]
        if isinstance(error, Exception) and type(text) is str and all(type(one) is str for one in attributes):
            return error
    except BaseException as problem:
        text = f"its text cannot be had: {type(problem).__name__}"
    return BackendError(f"{type(error).__name__}: {text}", stage="run")


def readable_result(result: Any) -> Any:
    """The result, if it can be looked at. Raises BackendError saying what it holds that has no values."""
    try:
        leaves = flatten(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    except BaseException as error:
        raise BackendError(f"the result cannot be taken apart: {type(error).__name__}", stage="run") from None
    for leaf in tensors:
        if type(leaf) in PLAIN_TENSORS and leaf.device.type == "cpu" and not is_wrapped(leaf):
            continue
        try:
            values = dense(leaf)
            torch.empty(values.shape, dtype=values.dtype).copy_(values)
        except BaseException as error:
            what = f"{type(leaf).__name__} on {_device(leaf)}"
            reason = f"{type(error).__name__}: {error}"[:200] if isinstance(error, Exception) else type(error).__name__
            raise BackendError(f"the result holds a {what}, which has no values: {reason}", stage="run") from None
    return result


def _device(leaf: Any) -> str:
    try:
        return str(leaf.device)
    except BaseException:
        return "no device"


def _open_files() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


class _IdleClock:
    """How much other threads compute while the harness is at work, and the backend should rest."""

    def __init__(self) -> None:
        self._wall = self._others = 0.0
        self._enough = BUSY_SECONDS
        self.start()

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.monotonic(), time.process_time() - time.thread_time()

    def start(self) -> None:
        self._since = self._now()

    def stop(self) -> None:
        now = self._now()
        self._wall += now[0] - self._since[0]
        self._others += now[1] - self._since[1]

    def others_busy(self) -> bool:
        """Whether other threads are busy, and stay so: those of a runtime may spin a little for more work."""
        self.stop()
        self.start()
        if self._wall < self._enough:
            return False
        busy = self._others > BUSY * self._wall
        self._wall = self._others = 0.0
        if not busy:
            return False
        self._enough *= 4  # what only spins is asked less and less often
        time.sleep(REST_SECONDS)
        before = self._now()
        time.sleep(REST_SECONDS)
        now = self._now()
        self.start()
        return now[1] - before[1] > BUSY * (now[0] - before[0])
