"""Functions with an ``lru_cache``: what the program's own cache holds counts, and a call fills it as eager does.

While a program is captured, its cache is not touched: it would keep tensors of the compiler's, and hide them.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, Protocol

import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.state.kinds import ATOMS, MISSING
from torchstone.compiler.frontends.state.questions import Question

Again = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _is_key(key: Any, typed: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a key of a cache, which functools makes, is for these arguments."""
    if not typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return type(key) is type(args[0]) and key == args[0]
    parts: list[Any] = list(args)
    if kwargs:
        parts += [_Mark, *(part for item in kwargs.items() for part in item)]
    if typed:
        parts += [type(value) for value in (*args, *kwargs.values())]
    if type(key) is not tuple or len(key) != len(parts):
        return False
    return all(type(k) is object if p is _Mark else _one(k, p) for k, p in zip(key, parts, strict=True))


class _Mark:
    """Stands for the object that parts arguments by name from the others."""


def _one(key: Any, value: Any) -> bool:
    return key is value or (not isinstance(key, torch.Tensor) and not isinstance(value, torch.Tensor) and key == value)


def held_in(cache: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function's cache holds for these arguments, MISSING where there is nothing; asks no statistics.

    Raises Unsupported where it may hold something for a tensor: the program is captured with others.
    """
    if not cache.cache_info().currsize:
        return MISSING
    found = gc.get_referents(cache)
    place = max(i for i, value in enumerate(found) if type(value) is dict and value is not vars(cache))
    keys = found[place]
    typed = cache.cache_parameters()["typed"]
    if any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())) and any(
        isinstance(part, torch.Tensor) for key in keys if type(key) is tuple for part in key
    ):
        name = cache.__name__
        raise Unsupported(f"the cache of {name} holds what it was for other tensors", stage="capture")
    for key in keys:
        if _is_key(key, typed, args, kwargs):
            if cache.cache_parameters()["maxsize"] is None:
                return keys[key]
            # What a bounded cache keeps by its keys says nothing. The function refers to its class, and then to the
            # key, the result and the class of each entry.
            result = [found[i + 1] for i in range(1, place, 3) if found[i] is key]
            if len(result) != 1 or place != 1 + 3 * len(keys):
                raise Unsupported(f"the cache of {cache.__name__} is laid out in another way", stage="capture")
            return result[0]
    return MISSING


class World(Protocol):
    """What knows the objects of a program, see Heap."""

    asked: dict[Hashable, Question]
    again: list[Again]

    def snapshot(self) -> Callable[[], bool]:
        """Return what says whether they have changed since."""
        ...


class Recalled:
    """Stands for a function with a cache while a program is captured.

    What it computes anew is added to ``computed``, what was asked of its cache to ``world.asked``, and calls that fill
    it to ``world.again``.
    """

    def __init__(self, cache: Any, computed: list[Any], world: World) -> None:
        functools.update_wrapper(self, cache)
        self._cache, self._computed, self._world = cache, computed, world
        self._known: dict[Any, Any] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(kwargs.items()))
        if key not in self._known:
            self._known[key] = self._first(args, kwargs)
        if all(isinstance(value, ATOMS) for value in (*args, *kwargs.values())):
            self._world.again.append((self._cache, args, kwargs))
        return self._known[key]

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cache, what = self._cache, f"what the cache of {self._cache.__name__} holds"
        held = held_in(cache, args, kwargs)
        if held is not MISSING:
            self._world.asked[id(self), len(self._world.asked)] = Question(
                what, lambda: held_in(cache, args, kwargs), held
            )
            return held
        changed = self._world.snapshot()
        out = cache.__wrapped__(*args, **kwargs)
        if changed():
            raise Unsupported(
                f"the program calls {cache.__name__}, which changes objects and then is in its lru_cache: a call "
                "would not do that again; call it once before",
                stage="capture",
            )
        self._computed.append(out)
        if isinstance(out, ATOMS):

            def ask() -> Any:
                now = held_in(cache, args, kwargs)
                return out if now is MISSING else now

            self._world.asked[id(self), len(self._world.asked)] = Question(what, ask, out)
        return out

    def _refuse(self, *_: Any) -> NoReturn:
        raise Unsupported(f"the program looks at the cache of {self._cache.__name__}", stage="capture")

    cache_info = cache_clear = cache_parameters = _refuse
