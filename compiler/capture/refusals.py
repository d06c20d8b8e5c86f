"""What a capture refuses inside of a program, whatever the program or a library makes of the exception.

``Module.load_state_dict`` catches what a copy raises and blames the state dict; TorchScript's interpreter makes a
RuntimeError of everything; a program may catch it and go on in a way that eager never would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

_refused: ContextVar[list[Exception] | None] = ContextVar("refused", default=None)


@contextlib.contextmanager
def refusals() -> Iterator[list[Exception]]:
    """Give a list that gets what functions with ``refusing`` raise in the block, the first first."""
    found: list[Exception] = []
    token = _refused.set(found)
    try:
        yield found
    finally:
        _refused.reset(token)


@contextlib.contextmanager
def attempt() -> Iterator[None]:
    """Forget what is refused in the block: it is tried, and done in another way if it does not work."""
    token = _refused.set(None)
    try:
        yield
    finally:
        _refused.reset(token)


def refusing(*errors: type[Exception]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function that a program calls, known or not, note what it raises of these kinds."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except errors as error:
                if (found := _refused.get()) is not None:
                    found.append(error)
                raise

        return call

    return decorate
