"""Which lines of some source files run: a trace that looks at each function until all of its lines have."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeAlias

Lines: TypeAlias = "dict[str, set[int]]"
"""Lines that ran, by file."""

CALLS = 30
"""Calls of a function in a case that are traced after the last one that ran a new line of it: tracing is slow."""


class LineTracer:
    """Notes the lines below a folder that run.

    A function is looked at until all of its lines have run, or none that is new in `CALLS` calls of a case. ``folders``
    are those of the folder that are watched, all if empty.
    """

    def __init__(self, root: str, folders: Collection[str] = ()) -> None:
        self.root = f"{root}/"
        self.ran: set[tuple[CodeType, int]] = set()
        self._watched = tuple(f"{self.root}{folder}/" for folder in folders) or (self.root,)
        self._left: dict[CodeType, set[int]] = {}
        self._calls: Counter[CodeType] = Counter()
        self._new: list[tuple[CodeType, int]] = []

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Watch what runs in the context."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def run(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function under the trace. What it raises is no matter: the lines before it ran."""
        try:
            with self.tracing():
                function(*args)
        except Exception:
            return

    def lines(self) -> Lines:
        """What ran, by file from the folder on."""
        out: Lines = {}
        for code, number in self.ran:
            out.setdefault(code.co_filename.removeprefix(self.root), set()).add(number)
        return out

    def next_case(self) -> list[str]:
        """Return the lines that ran for the first time since this was last asked, as ``file:line``."""
        new = [f"{code.co_filename.removeprefix(self.root)}:{number}" for code, number in self._new]
        self._new.clear()
        self._calls.clear()
        return new

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            left = self._left[code] = set(self._lines_of(code))
        if not left or self._calls[code] == CALLS:
            return None
        self._calls[code] += 1
        return self._line

    def _lines_of(self, code: CodeType) -> Iterator[int]:
        """The lines of a function that is watched; the one that it begins with is none where there are others.

        Modules and the bodies of classes are none: they run as they are imported, whatever the case.
        """
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._watched):
            lines = {line for *_, line in code.co_lines() if line is not None}
            yield from lines - {code.co_firstlineno} or lines

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        code, line = frame.f_code, frame.f_lineno
        if event == "line" and line in self._left[code]:
            self.ran.add((code, line))
            self._new.append((code, line))
            self._left[code].discard(line)
            self._calls[code] = 0
        return self._line
