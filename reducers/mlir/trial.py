"""One trial: a module goes through a pipeline in a process of its own, which may crash, hang or eat memory.

The process is forked from this one, which has the bindings loaded: a trial costs what its passes cost, and some
milliseconds. It tells what it is doing as lines of JSON; nothing that it says is executed or unpickled.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from torchstone.compiler import mlir
from torchstone.reducers.message import normalize
from torchstone.reducers.mlir import pipeline as pipelines
from torchstone.reducers.mlir.context import shared_context
from torchstone.reducers.mlir.pipeline import Pipeline

MEMORY = 8 << 30
"""Bytes of address space that a trial may take beyond what it starts with."""

RUN_BEFORE, RUN_AFTER = "running the module as it is", "running the module after the pipeline"
"""Where a trial is that runs the module, beside the names of passes."""

_SAID = re.compile(r"(?:LLVM ERROR|Assertion|error:|terminate called|what\(\))")
_OP = re.compile(r"'([\w.]+)' op")
_PRINTED = re.compile(r": (?:%[^=]*= )?\"[\w.$]+\".*", re.DOTALL)
"""An op at the end of a message, in full: it is about the whole of what is reduced."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended. ``kind`` is ok, invalid, error, crash, timeout or wrong.

    ``at`` is the pass that was running; ``detail`` the signal, the message, or the difference.
    ``module`` is the module as the pipeline left it, where it did and was asked for.
    """

    kind: str
    at: str = ""
    detail: str = ""
    module: str = ""

    @property
    def signature(self) -> tuple[str, str, str]:
        """What has to stay the same: the kind, the pass, and the message's normal form with the op that it names. An op
        that the message prints in full is no part of it."""
        if self.kind in ("ok", "wrong", "timeout"):
            return self.kind, self.at, ""
        named = _OP.search(self.detail)
        message = normalize(_PRINTED.sub("", self.detail))
        return self.kind, self.at, message + (f" ({named[1]})" if named else "")

    def __str__(self) -> str:
        return f"{self.kind}{f' in {self.at}' if self.at else ''}{f': {self.detail}' if self.detail else ''}"


def try_pipeline(module: str, pipeline: Pipeline, timeout: float, text: bool = False) -> Outcome:
    """Parse the module, run the pipeline, and say how it went. ``text``: return the module that comes out, too."""
    context = shared_context()
    return in_child(lambda tell: _passes(module, pipeline, context, tell, text), timeout)


def try_parse(module: str, timeout: float) -> Outcome:
    """Parse and verify the module alone."""
    return try_pipeline(module, (), timeout)


def in_child(work: Callable[[Callable[..., None]], None], timeout: float) -> Outcome:
    """Run ``work(tell)`` in a fork, and return the last thing that it told, or how it died.

    ``tell(kind=…, at=…, detail=…)`` is what the child says; kind ``at`` is where it is, the others how it ended.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            _child(work, writer, stderr)
        os.close(writer)
        lines, ended = _listen(reader, child, timeout)
        os.close(reader)
        _, status = os.waitpid(child, 0)
        stderr.seek(0)
        said = stderr.read().decode("utf-8", "replace")
    told = [json.loads(line) for line in lines if line.endswith("}")]
    at = next((row["at"] for row in reversed(told) if row["kind"] == "at"), "")
    if not ended:
        return Outcome("timeout", at, f"over {timeout:g} s")
    if told and told[-1]["kind"] != "at":
        return Outcome(**{"at": at, **told[-1]})
    return Outcome("crash", at, _death(status, said))


def _child(work: Callable[[Callable[..., None]], None], writer: int, stderr: IO[bytes]) -> None:
    """Do the work and leave this process at once: no handler, no buffer of the parent's runs twice."""
    code = 1
    try:
        os.dup2(stderr.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
            signal.signal(number, signal.SIG_DFL)  # a test runner's handler would print this process's stack
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_memory()

        def tell(**row: str) -> None:
            data = (json.dumps(row) + "\n").encode()
            while data:
                data = data[os.write(writer, data) :]

        work(tell)
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _listen(reader: int, child: int, timeout: float) -> tuple[list[str], bool]:
    """Return the lines that the child tells until it ends; false if it had to be killed."""
    data, until, ended = b"", time.monotonic() + timeout, True
    while True:
        left = until - time.monotonic()
        ready = select.select([reader], [], [], max(left, 0))[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            ended = False
            break
        more = os.read(reader, 1 << 20)
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace").splitlines(), ended


def _death(status: int, said: str) -> str:
    """Return the signal, or the exit code, and the line in which the process says why."""
    number = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-number).name if number < 0 else f"exit code {number}"
    why = next((line.strip() for line in said.splitlines() if _SAID.search(line)), "")
    return f"{name}: {why}" if why else name


def _passes(module: str, pipeline: Pipeline, context: Any, tell: Callable[..., None], text: bool) -> None:
    bindings = mlir.bindings()
    tell(kind="at", at="parse")
    try:
        parsed = bindings.ir.Module.parse(module, context)
    except bindings.ir.MLIRError as error:
        tell(kind="invalid", detail=_message(error))
        return
    for entry in pipelines.leaves(pipeline):
        tell(kind="at", at=pipelines.pass_name(entry))
        try:
            manager = bindings.passmanager.PassManager.parse(pipelines.text((entry,)), context)
        except ValueError as error:
            tell(kind="invalid", detail=_first_line(str(error)))
            return
        try:
            manager.run(parsed.operation)
        except bindings.ir.MLIRError as error:
            tell(kind="error", detail=_message(error))
            return
    tell(kind="ok", module=parsed.operation.get_asm(assume_verified=True) if text else "")


def _message(error: Any) -> str:
    """Return the first error that MLIR reports."""
    for found in _diagnostics(error.error_diagnostics):
        if str(found.severity).endswith("ERROR"):
            return found.message
    return _first_line(str(error))


def _diagnostics(found: Any) -> Iterator[Any]:
    for diagnostic in found:
        yield diagnostic
        yield from _diagnostics(diagnostic.notes)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "")
