"""What stands in, while a program is captured, for objects that cannot be put back into the state that they were in."""

from __future__ import annotations

import contextvars
import functools
import random
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from torchstone.compiler.diagnostics import Unsupported

_ITERATORS = ("builtins", "itertools", "_io")
_GOING_ON = (types.GeneratorType, random.Random, contextvars.ContextVar, threading.local)


class Refusing:
    """Refuses whatever a program does with it."""

    def __init__(self, what: str) -> None:
        self.__dict__["what"] = what

    def _refuse(self, *_: Any) -> NoReturn:
        what = self.__dict__["what"]
        raise Unsupported(
            f"the program uses {what}, which nobody can put back to where it was before a run", stage="capture"
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
    if value is torch.from_numpy or value is torch.frombuffer:  # under whatever name, the one that is there meanwhile
        return lambda *args, **kwargs: getattr(torch, value.__name__)(*args, **kwargs)
    inner = value.__self__ if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType) else value
    cls = type(inner)
    advances = isinstance(inner, Iterator) and cls.__module__ in _ITERATORS
    if advances or isinstance(inner, _GOING_ON) or cls.__module__.startswith("numpy.random"):
        return Refusing(f"a {cls.__name__}")
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
