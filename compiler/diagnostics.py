"""Errors that say what failed, in which op, on which line of the user's program, and why the op is there."""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.compiler.ir import Frame, Location, Operation


class TorchstoneError(Exception):
    """Base of every error the compiler raises on purpose.

    ``stage`` is where it happened: ``capture``, ``contract``, ``lower``, ``compile`` or ``run``.
    """

    stage = "contract"

    def __init__(self, message: str, *, stage: str | None = None, op: str = "", where: str = "") -> None:
        self.message = message
        self.op = op
        self.where = where
        if stage is not None:
            self.stage = stage
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.where}" if self.where else self.message


class TorchstoneWarning(UserWarning):
    """What a user should know of something that goes on without it. The command line prints it as one line."""


class Unsupported(TorchstoneError):
    """The program is valid PyTorch, and the compiler says it does not take it. ``op`` names the op at fault."""


class VerifyError(TorchstoneError):
    """A graph breaks a rule of the IR or of the backend contract."""


class GuardError(TorchstoneError):
    """An argument does not fit what the executable was compiled for."""

    stage = "run"


def raise_bug(error: Exception) -> None:
    """Raise an exception again if it is a bug of the compiler; return if PyTorch or the program raised it.

    For handlers of what PyTorch's shape functions, decompositions and exporter raise, which may be anything. A bug is
    an exception of Python's own that a line of the compiler raised. A RuntimeError is none: it is what PyTorch's C++
    code raises through the line that called it. Nor are the compiler's own classes, which it raises on purpose.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("torchstone.compiler.")
    if ours and type(error).__module__ == "builtins" and not isinstance(error, RuntimeError):
        raise error


# How the message of a ``flat.check`` begins that declines values eager takes.
NOT_TAKEN = "torchstone does not take this: "


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return `` (did you mean "x"?)`` for the closest candidate, or an empty string."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f' (did you mean "{close[0]}"?)' if close else ""


@contextmanager
def blaming(op: Operation) -> Iterator[None]:
    """Let errors of the block say that they came up at ``op``: ours in ``where``, those of a bug in a note."""
    try:
        yield
    except TorchstoneError as error:
        error.op, error.where = error.op or op.name, error.where or describe(op)
        raise
    except Exception as error:
        error.add_note(describe(op))
        raise


def describe(op: Operation) -> str:
    """Quote an operation, the user's line it came from, and the notes of the expansions that introduced it."""
    lines = [f"  in {op}", *(quote(frame) for frame in op.location.frames[:1])]
    lines.extend(f"  introduced by {note}" for note in op.location.notes)
    return "\n".join(lines)


def origin(location: Location) -> str:
    """Tell the op that a condition or a check comes from, the user's line, and the ops that led to it."""
    *earlier, last = location.notes or ("",)
    lines = [f"  in {last}"] if last else []
    lines.extend(quote(frame) for frame in location.frames[:1])
    lines.extend(f"  introduced by {note}" for note in reversed(earlier))
    return "\n".join(lines)


def failed_check(op: Operation) -> str:
    """Return the message of the error that a ``flat.check`` raises at run time, for ``check_error``."""
    return "\n".join(filter(None, (op.attributes["message"], origin(op.location))))


def check_error(message: str) -> Exception:
    """Return what a ``flat.check`` that does not hold raises: RuntimeError, as eager does, or Unsupported."""
    if not message.startswith(NOT_TAKEN):
        return RuntimeError(message)
    reason, _, where = message.removeprefix(NOT_TAKEN).partition("\n")
    return Unsupported(reason, stage="run", where=where)


def quote(frame: Frame) -> str:
    """Quote a line of the user's program."""
    text = linecache.getline(frame.file, frame.line).strip()
    return f"  at {frame.file}:{frame.line} in {frame.function}" + (f"\n      {text}" if text else "")
