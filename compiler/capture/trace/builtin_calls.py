"""``float(t)``, ``int(t)`` and ``bool(t)`` in a program's code: Python makes a number of what they return.

So that one may be a run-time number, the modules that call them see functions of ours under these names while a program
is recorded, and nothing else does. They are classes too: ``isinstance(x, float)`` means what it did.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PASSED_ON = tuple(os.path.join(os.path.dirname(torch.__file__), name) for name in ("overrides.py", "_tensor.py"))
_SYMBOLS: dict[type, type] = {float: torch.SymFloat, int: torch.SymInt, bool: torch.SymBool}
# What Python calls for them, on a tensor or a symbol.
CALLED = {"__float__": "float", "__int__": "int", "__bool__": "bool"}


class Again(BaseException):
    """A module makes numbers of symbols: the program has to be recorded again, with functions of ours in it.

    A BaseException: the program must not catch it.
    """

    def __init__(self, place: dict[str, Any]) -> None:
        super().__init__()
        self.place = place


def caller(name: str) -> dict[str, Any] | None:
    """Return the global names of the code that has called a builtin of this name, where those can be replaced."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, *_PASSED_ON)):
        frame = frame.f_back
    if frame is None or name not in frame.f_code.co_names or name in frame.f_globals:
        return None
    return frame.f_globals


def globals_of(fn: Any) -> list[dict[str, Any]]:
    """Return the global names of a program's own code."""
    if isinstance(fn, torch.nn.Module):
        fn = vars(type(fn)).get("forward")
    place = getattr(getattr(fn, "__func__", fn), "__globals__", None)
    return [place] if place is not None else []


class _Replacing(type):
    """The class of a stand-in for a class of Python's."""

    real: type
    convert: Callable[[type, Any], Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (torch.Tensor, *_SYMBOLS.values())):
            return cls.convert(cls.real, args[0])
        return cls.real(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (cls.real, *(s for kind, s in _SYMBOLS.items() if issubclass(kind, cls.real))))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(getattr(subclass, "real", subclass), cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.real or getattr(other, "real", None) is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)


@contextlib.contextmanager
def replaced(places: Iterable[dict[str, Any]], convert: Callable[[type, Any], Any]) -> Iterator[None]:
    """Let ``float``, ``int`` and ``bool`` be ``convert(float, x)``, … for tensors and symbols in these global names."""
    stand_ins: dict[str, Any] = {
        kind.__name__: _Replacing(kind.__name__, (), {"real": kind, "convert": staticmethod(convert)})
        for kind in _SYMBOLS
    }
    stand_ins["isinstance"] = _isinstance
    added: list[tuple[dict[str, Any], str]] = []
    try:
        for place in places:
            for name in stand_ins.keys() - place.keys():
                place[name] = stand_ins[name]
                added.append((place, name))
        yield
    finally:
        for place, name in added:
            place.pop(name, None)


def _isinstance(instance: Any, kinds: Any) -> bool:
    """Say what is of a class, a symbol being of that of its number."""
    if builtins.isinstance(instance, kinds):
        return True
    for kind, symbol in _SYMBOLS.items():
        if type(instance) is symbol:
            return any(
                k is object or builtins.issubclass(kind, k) for k in _flat(kinds) if builtins.isinstance(k, type)
            )
    return False


def _flat(kinds: Any) -> Iterator[Any]:
    if isinstance(kinds, types.UnionType):
        kinds = kinds.__args__
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        yield from _flat(kind) if isinstance(kind, tuple | types.UnionType) else (kind,)
