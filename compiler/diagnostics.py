"""Errors that say what failed, in which op, on which line of the user's program, and why the op is there."""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.compiler.ir import Frame, Operation


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


class Unsupported(TorchstoneError):
    """The program is valid PyTorch, and the compiler says it does not take it. ``op`` names the op at fault."""


class VerifyError(TorchstoneError):
    """A graph breaks a rule of the IR or of the backend contract."""


class GuardError(TorchstoneError):
    """An argument does not fit what the executable was compiled for."""

    stage = "run"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return `` (did you mean "x"?)`` for the closest candidate, or an empty string."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f' (did you mean "{close[0]}"?)' if close else ""


def describe(op: Operation) -> str:
    """Quote an operation, the user's line it came from, and the notes of the expansions that introduced it."""
    lines = [f"  in {op}", *(quote(frame) for frame in op.location.frames[:1])]
    lines.extend(f"  introduced by {note}" for note in op.location.notes)
    return "\n".join(lines)


def quote(frame: Frame) -> str:
    """Quote a line of the user's program."""
    text = linecache.getline(frame.file, frame.line).strip()
    return f"  at {frame.file}:{frame.line} in {frame.function}" + (f"\n      {text}" if text else "")
