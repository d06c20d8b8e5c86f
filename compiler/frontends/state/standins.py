"""What stands in, while a program is captured, for objects that cannot be put back into the state that they were in."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from torchstone.compiler.diagnostics import Unsupported

_ITERATORS = ("builtins", "itertools", "_io")


class Refusing:
    """Refuses whatever a program does with it."""

    def __init__(self, what: str) -> None:
        self.__dict__["what"] = what

    def _refuse(self, *_: Any) -> NoReturn:
        what = self.__dict__["what"]
        raise Unsupported(
            f"the program uses {what}: it goes on with every run, and cannot be put back", stage="capture"
        )

    __iter__ = __next__ = __len__ = __bool__ = __call__ = __getitem__ = __setattr__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


def stand_in(value: Any, cached: list[Any]) -> Any:
    """Return what a program is given for a value: in most cases the value.

    An iterator is refused once it is used. A function with an ``lru_cache`` is called anew in each capture, so that its
    cache holds no tensor of ours; what such functions return is added to ``cached``.
    """
    if isinstance(value, functools._lru_cache_wrapper):
        return _recomputing(value.__wrapped__, cached)
    module = type(value).__module__
    if isinstance(value, types.GeneratorType) or (isinstance(value, Iterator) and module in _ITERATORS):
        return Refusing(f"a {type(value).__name__}")
    return value


def _recomputing(function: Callable[..., Any], cached: list[Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(kwargs.items()))
        if key not in known:
            known[key] = function(*args, **kwargs)
            cached.append(known[key])
        return known[key]

    return call
