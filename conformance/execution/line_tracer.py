"""What of some source files runs: lines, by a trace that looks at each function until all of its lines have run; and
functions that are not what they were."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from torchstone.conformance.execution.live_functions import code_of_files, live_code

Lines: TypeAlias = "dict[str, set[int]]"
"""Lines that ran, by file."""

CALLS = 30
"""Calls of a function in a case that are traced after the last one that ran a new line of it: tracing is slow."""


Fingerprints: TypeAlias = "dict[str, list[str]]"
"""What functions compute, as a hash of their code, by ``file:name``; there may be several of a name."""


@dataclass
class Ran:
    """What ran for a case: lines for the first time, and functions: all of them, and those that have changed.

    ``functions`` are those that were met for the first time, whether they ran or are only there.
    """

    lines: list[str] = field(default_factory=list)
    functions: Fingerprints = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    def add(self, more: Ran) -> None:
        """Take in what ran for it besides."""
        self.lines += more.lines
        self.called = list(dict.fromkeys((*self.called, *more.called)))
        self.changed = list(dict.fromkeys((*self.changed, *more.changed)))
        for name, codes in more.functions.items():
            self.functions.setdefault(name, []).extend(codes)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without what is empty; what a case called only where it ran something new."""
        left_out = () if self.lines else ("called",)
        return {name: value for name, value in vars(self).items() if value and name not in left_out}

    @classmethod
    def from_json(cls, data: object) -> Ran:
        """Read what ``to_json`` gave, from whoever it is: what is of another kind is left out."""
        given = data if isinstance(data, dict) else {}
        functions = given.get("functions")
        pairs = functions.items() if isinstance(functions, dict) else ()
        return cls(
            _texts(given.get("lines")),
            {str(name): _texts(codes) for name, codes in pairs},
            _texts(given.get("changed")),
            _texts(given.get("called")),
        )


def _texts(given: object) -> list[str]:
    return [str(text) for text in given] if isinstance(given, list) else []


def fingerprint(code: CodeType) -> str:
    """A hash of what a function computes, wherever in its file it stands: its instructions, names and constants."""
    told = hashlib.sha256(code.co_code)
    for part in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        told.update(repr(part).encode())
    for constant in code.co_consts:
        told.update((fingerprint(constant) if isinstance(constant, CodeType) else _text_of(constant)).encode())
    return told.hexdigest()[:16]


def _text_of(constant: object) -> str:
    if isinstance(constant, frozenset):  # whose order hangs on the process
        return str(sorted(map(repr, constant)))
    return repr(constant)


def functions_of_files(root: str) -> Fingerprints:
    """The functions in the Python files of a folder, whether or not anything has imported them."""
    met = LineTracer(root)
    for code in code_of_files(Path(root)):
        met.meet(code)
    return met.next_case().functions


class _Watched:
    """A function that is watched, and what of it has not run."""

    __slots__ = ("calls", "changed", "code", "left", "name")

    def __init__(self, code: CodeType, name: str, left: set[int], changed: bool) -> None:
        self.code = code  # kept: another one may not have its identity
        self.name, self.left, self.changed = name, left, changed
        self.calls = 0  # in the case at hand that ran nothing new of it


class LineTracer:
    """Notes the lines below a folder that run.

    A function is looked at until all of its lines have run, or none that is new in `CALLS` calls of a case. ``folders``
    are those of the folder that are watched, all if empty. ``known`` are the functions as they were:
    of each that is not among them, changed or new, every case that calls it is told. Without any, nothing is.
    Functions are met as they are called, or by ``meet_living``.
    """

    def __init__(self, root: str, folders: Collection[str] = (), known: Mapping[str, Collection[str]] = {}) -> None:
        self.root = f"{root}/"
        self._prefixes = tuple(f"{self.root}{folder}/" for folder in folders) or (self.root,)
        self._known = known
        self._of: dict[int, _Watched | None] = {}  # by the identity of the code: its hash takes long
        self._unwatched: list[CodeType] = []  # kept, so that none of these is that of another one
        self._functions: Fingerprints = {}
        self._called: set[_Watched] = set()
        self.ran: set[tuple[CodeType, int]] = set()
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

    def meet_living(self) -> None:
        """Meet the functions that are there already: the next case tells them, and whether they have changed."""
        for code in live_code(self._prefixes):
            self.meet(code)

    def meet(self, code: CodeType) -> None:
        """Meet a function, if it is watched: the next case tells it."""
        if id(code) not in self._of:
            self._meet(code)

    def lines(self) -> Lines:
        """What ran, by file from the folder on."""
        out: Lines = {}
        for code, number in self.ran:
            out.setdefault(code.co_filename.removeprefix(self.root), set()).add(number)
        return out

    def next_case(self) -> Ran:
        """Return what ran since this was last asked; lines as ``file:line``."""
        lines = [f"{code.co_filename.removeprefix(self.root)}:{number}" for code, number in self._new]
        changed = list(dict.fromkeys(one.name for one in self._called if one.changed))
        ran = Ran(lines, self._functions, changed, list(dict.fromkeys(one.name for one in self._called)))
        for one in self._called:
            one.calls = 0
        self._functions = {}
        self._called.clear()
        self._new.clear()
        return ran

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        try:
            watched = self._of[id(code)]
        except KeyError:
            watched = self._meet(code)
        if watched is None:
            return None
        self._called.add(watched)
        if not watched.left or watched.calls == CALLS:
            return None
        watched.calls += 1
        return self._line

    def _meet(self, code: CodeType) -> _Watched | None:
        """Take note of a function; return None if it is not watched."""
        left = set(self._lines_of(code))
        if not left:
            self._unwatched.append(code)
            self._of[id(code)] = None
            return None
        name = f"{code.co_filename.removeprefix(self.root)}:{code.co_qualname}"
        found = fingerprint(code)
        self._functions.setdefault(name, []).append(found)
        changed = bool(self._known) and found not in self._known.get(name, ())
        watched = self._of[id(code)] = _Watched(code, name, left, changed)
        return watched

    def _lines_of(self, code: CodeType) -> Iterator[int]:
        """The lines of a function that is watched; the one that it begins with is none where there are others.

        Modules and the bodies of classes are none: they run as they are imported, whatever the case.
        """
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._prefixes):
            lines = {line for *_, line in code.co_lines() if line is not None}
            yield from lines - {code.co_firstlineno} or lines

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        code, line = frame.f_code, frame.f_lineno
        watched = self._of[id(code)]
        if event == "line" and watched is not None and line in watched.left:
            self.ran.add((code, line))
            self._new.append((code, line))
            watched.left.discard(line)
            watched.calls = 0
        return self._line
