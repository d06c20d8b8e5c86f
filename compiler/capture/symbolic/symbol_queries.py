"""Symbols that Python asks what they are: by printing, hashing or branching, and by the builtins that make numbers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler.capture.trace.builtin_calls import CALLED, Again, caller

_KINDS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def asked_to_convert(name: str) -> None:
    """Raise Again where Python code has called a builtin that asks a tensor or a symbol for a number."""
    if name in CALLED and (place := caller(CALLED[name])) is not None:
        raise Again(place)


def concrete(number: Any) -> Any:
    """Return the Python number of a symbol: the program decides by it."""
    node = number.node
    if isinstance(number, torch.SymInt):
        return node.guard_int("", 0)
    return node.guard_float("", 0) if isinstance(number, torch.SymFloat) else node.guard_bool("", 0)


@contextlib.contextmanager
def asked_by_python(is_user: Callable[[str], bool], ask: Callable[[str, Any, Any], Any]) -> Iterator[None]:
    """Have symbols answer, where the program's own code asks, as numbers do: when printed, hashed, compared, …

    ``is_user`` says whose code a file is. ``ask("format", number, by)`` gives a text, None where that takes the number.
    """

    def answering(kept: Any, name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            asks = is_user(sys._getframe(1).f_code.co_filename)
            if asks and name == "__format__" and (text := ask("format", self, *args)) is not None:
                return text
            return getattr(concrete(self), name)(*args) if asks else kept(self, *args)

        return method

    def converting(kept: Any, name: str) -> Any:
        def method(self: Any) -> Any:
            asked_to_convert(name)
            return kept(self)

        return method

    with contextlib.ExitStack() as stack:
        for kind in _KINDS:
            for name in ("__repr__", "__str__", "__format__", "__hash__"):
                stack.enter_context(_patched(kind, name, answering(getattr(kind, name), name)))
            for name in ("__float__", "__int__"):
                if hasattr(kind, name):
                    stack.enter_context(_patched(kind, name, converting(getattr(kind, name), name)))
        for name in ("__eq__", "__ne__"):  # sympy would compare its truths with numbers
            stack.enter_context(_patched(torch.SymBool, name, answering(getattr(torch.SymBool, name), name)))
        stack.enter_context(_patched(torch.SymFloat, "__bool__", lambda self: bool(self != 0)))
        yield


@contextlib.contextmanager
def _patched(place: Any, name: str, value: Any) -> Iterator[None]:
    own = vars(place).get(name)
    setattr(place, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(place, name)
        else:
            setattr(place, name, own)
