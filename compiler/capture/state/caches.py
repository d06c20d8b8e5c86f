"""Functions with an ``lru_cache``: what the program's own cache holds counts, and a call fills it as eager does.

While a program is captured, its cache is not touched: it would keep tensors of the compiler's, and hide them.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NoReturn, Protocol

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.modes import no_dispatch_modes
from torchstone.compiler._torch.tensors import known_version
from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.state.kinds import ATOMS, MISSING
from torchstone.compiler.capture.state.opaque import never_changes
from torchstone.compiler.capture.state.questions import Question
from torchstone.compiler.capture.state.standins import StandIn
from torchstone.compiler.diagnostics import Unsupported

Given = tuple[str, Any, Any]
Again = Callable[[], None]


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


def signature(value: Any, name: str) -> Any:
    """Return what tells whether a value that the cache of a function keeps is changed: equal as long as it is not."""
    if isinstance(value, ATOMS):
        return type(value), value
    leaves, spec = pytree.tree_flatten(value)
    return spec, [_leaf_signature(leaf, name) for leaf in leaves]


def _leaf_signature(leaf: Any, name: str) -> Any:
    if isinstance(leaf, torch.Tensor):
        return id(leaf), known_version(leaf)
    if isinstance(leaf, ATOMS):
        return type(leaf), leaf
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool) or never_changes(type(leaf)):
        return id(leaf)
    raise Unsupported(f"the lru_cache of {name} keeps a {type(leaf).__name__}, which may change", stage="capture")


def _leaves(value: Any) -> Any:
    leaves, spec = pytree.tree_flatten(value)
    return spec, [id(leaf) for leaf in leaves]


def check_given(given: Iterable[Given]) -> None:
    """Unsupported where the program has changed a container that a function with a cache gave it."""
    for name, value, was in given:
        if _leaves(value) != was:
            raise Unsupported(f"the program writes to what the lru_cache of {name} keeps", stage="capture")


def _drawn() -> torch.Tensor:
    with no_dispatch_modes():
        return torch.default_generator.get_state()


# What a program is given in the place of its own while it is captured.
_OF_CAPTURE = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, StandIn)
_SAME, _OTHER = "as the example found it", "another"


class _Watched:
    """An entry of a cache: ``answer`` is its signature, None as long as no call has found one."""

    def __init__(self, cache: Any, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any, *, held: bool) -> None:
        self._cache, self._args, self._kwargs = cache, args, kwargs
        self._answer, self._was_held = answer, held

    def ask(self) -> str:
        """Say whether the cache holds what it held, or nothing where it held nothing."""
        held = held_in(self._cache, self._args, self._kwargs)
        if held is MISSING:
            return _OTHER if self._was_held else _SAME
        now = signature(held, self._cache.__name__)
        if self._answer is None:
            self._answer = now
        return _SAME if now == self._answer else _OTHER

    def fill(self) -> None:
        """Call the function as the program does, so that its cache holds what it would."""
        self._cache(*self._args, **self._kwargs)
        if self._answer is None:
            self.ask()


class World(Protocol):
    """What knows the objects of a program, see Heap."""

    asked: dict[Hashable, Question]
    again: list[Again]
    given: list[Given]

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

    @refusing(Unsupported)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(kwargs.items()))
        if key not in self._known:
            self._known[key] = self._first(args, kwargs)
        value, watched = self._known[key]
        if not any(isinstance(leaf, _OF_CAPTURE) for leaf in pytree.tree_leaves((args, kwargs))):
            self._world.again.append(watched.fill)
        return value

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, _Watched]:
        cache, name = self._cache, self._cache.__name__
        held = held_in(cache, args, kwargs)
        if held is not MISSING:
            answer, out = signature(held, name), pytree.tree_map(lambda leaf: leaf, held)
        else:
            changed, drawn = self._world.snapshot(), _drawn()
            answer, out = None, cache.__wrapped__(*args, **kwargs)
            if changed() or not torch.equal(drawn, _drawn()):
                raise Unsupported(
                    f"the program calls {name}, which changes objects or draws random numbers and then is in its "
                    "lru_cache: a call would do that again; call it once before",
                    stage="capture",
                )
            signature(out, name)
            self._computed.append(out)
            answer = signature(out, name) if isinstance(out, ATOMS) else None
        self._world.given.append((name, out, _leaves(out)))
        watched = _Watched(cache, args, kwargs, answer, held=held is not MISSING)
        question = Question(f"what the cache of {name} holds", watched.ask, _SAME)
        self._world.asked[id(self), len(self._world.asked)] = question
        return out, watched

    @refusing(Unsupported)
    def _refuse(self, *_: Any) -> NoReturn:
        raise Unsupported(f"the program looks at the cache of {self._cache.__name__}", stage="capture")

    cache_info = cache_clear = cache_parameters = _refuse
