"""What an exception out of a backend says: that it declines, that it cannot hold it, or an error."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported
from torchstone.conformance.execution.verdict import Outcome, Stage
from torchstone.conformance.oracle.finding import Finding

_STAGES = {
    "capture": Stage.CAPTURE,
    "contract": Stage.LOWER,
    "lower": Stage.LOWER,
    "compile": Stage.COMPILE,
    "run": Stage.RUN,
    "compare": Stage.COMPARE,
}


def failure(error: Exception, stage: Stage) -> tuple[Stage, Finding]:
    """The finding for an exception out of the backend: what it declines, what it cannot hold, or an error."""
    reached = _STAGES.get(str(getattr(error, "stage", "")), stage)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return stage, Finding(Outcome.OOM, message=describe_error(error))
    if isinstance(error, BackendUnsupported | Unsupported):
        reason = str(getattr(error, "reason", "") or error)
        op = str(getattr(error, "op", "") or "")
        message = reason if not op or op in reason else f"{op}: {reason}"
        return reached, Finding(Outcome.UNSUPPORTED, message=message, evidence={"op": op} if op else {})
    if isinstance(error, BackendError | TorchstoneError):
        return reached, Finding(Outcome.ERROR, message=str(error), evidence={"class": type(error).__name__})
    return reached, Finding(Outcome.ERROR, message=describe_error(error), evidence={"class": type(error).__name__})


def describe_error(error: Exception) -> str:
    """The class of an exception, and its message if it has one."""
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def out_of_order(backend: Any) -> str:
    """Say why a backend can run nothing more in this process, as where a kernel has broken its device; else nothing.

    What is amiss with the process alone keeps it from other cases, and not from the rest of this one.
    """
    why_spent = getattr(getattr(backend, "sandboxed", backend), "spent", None)
    return str(why_spent()) if why_spent is not None else ""
