"""Logging, in a program that is captured: what is below the level is nothing, a record is refused, nobody gets one."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.state.questions import Question
from torchstone.compiler.diagnostics import Unsupported

WRITES_LOGS = (logging.Logger, logging.LoggerAdapter)
_MAY_BE_ASKED = frozenset(
    {
        "debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "isEnabledFor", "name",
    }
)  # fmt: skip
_CHANGES = ("setLevel", "addHandler", "removeHandler", "addFilter", "removeFilter", "handle")
# Those of PyTorch and of this compiler log what they like.
_OTHERS = tuple(str(path) + os.sep for path in (Path(torch.__file__).parent, Path(__file__).resolve().parents[2]))


@refusing(Unsupported)
def _refuse(does: str, name: str) -> NoReturn:
    raise Unsupported(f"the program {does} the logger {name!r}, which a call would not do again", stage="capture")


def may_be_asked(name: str) -> bool:
    """Say whether a program may get this attribute of a logger."""
    return name in _MAY_BE_ASKED


@contextlib.contextmanager
def no_records(asked: dict[Hashable, Question]) -> Iterator[None]:
    """Refuse, in the block and in this thread, what makes a record or changes a logger.

    Whether a logger writes at a level is noted in ``asked``.
    """
    thread = threading.get_ident()
    own, kept = logging.__file__, {name: getattr(logging.Logger, name) for name in (*_CHANGES, "getEffectiveLevel")}
    enabled = logging.Logger.isEnabledFor

    def is_of_program() -> bool:
        if threading.get_ident() != thread:
            return False
        frame = sys._getframe(2)
        while frame.f_code.co_filename == own and frame.f_back is not None:
            frame = frame.f_back
        return not frame.f_code.co_filename.startswith(_OTHERS)

    def is_enabled(self: logging.Logger, level: int) -> bool:
        known = level in self._cache  # type: ignore[attr-defined]
        out = enabled(self, level)
        if is_of_program():
            if not known:  # which setLevel does not clear for each logger
                self._cache.pop(level, None)  # type: ignore[attr-defined]
            what = f"whether the logger {self.name!r} writes {logging.getLevelName(level)}"
            asked.setdefault((id(self), level), Question(what, lambda: enabled(self, level), out))
        return out

    def watching(name: str) -> Callable[..., Any]:
        def call(self: logging.Logger, *args: Any, **kwargs: Any) -> Any:
            asks = name == "getEffectiveLevel" and sys._getframe(1).f_code.co_filename == own
            if asks or not is_of_program():
                return kept[name](self, *args, **kwargs)
            does = "writes to" if name == "handle" else "asks or changes"
            _refuse(does, self.name)

        return call

    own_names = [name for name in kept if name in vars(logging.Logger)]
    try:
        for name in kept:
            setattr(logging.Logger, name, watching(name))
        logging.Logger.isEnabledFor = is_enabled
        yield
    finally:
        logging.Logger.isEnabledFor = enabled
        for name, method in kept.items():
            if name in own_names:
                setattr(logging.Logger, name, method)
            else:
                delattr(logging.Logger, name)
