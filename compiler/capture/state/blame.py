"""The line of the user's program that changes an object: found by running the program again, line by line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchstone.compiler.capture.state.code import is_user_code
from torchstone.compiler.diagnostics import Unsupported, quote
from torchstone.compiler.ir import Frame


class Effectful(Unsupported):
    """The program is refused for what it changes: the object of this number, or what ``changed`` tells of."""

    def __init__(
        self, message: str, number: int = -1, *, argument: bool = False, changed: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(message, stage="capture")
        self.number = number
        self.argument = argument
        self.changed = changed


def line_of_change(run: Callable[[], Any], changed: Callable[[], bool]) -> str:
    """Quote the line after which ``changed`` says so for the first time while ``run`` runs; empty when none does."""
    found: list[Frame] = []
    last: list[Frame] = []

    def look(frame: FrameType) -> None:
        if not found and last and changed():
            found.append(last[-1])
        last[:] = [Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if found or not is_user_code(frame.f_code) or frame.f_code.co_filename.startswith("<"):
            return None
        look(frame)
        return trace

    was = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(Exception):  # it may be refused on the way; what it did before that counts
            run()
    finally:
        sys.settrace(was)
    if not found and last and changed():
        found.append(last[-1])
    return quote(found[0]) if found else ""
