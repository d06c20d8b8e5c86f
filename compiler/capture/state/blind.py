"""Containers that a program only adds to: it gets ones in their place that take what is added and tell nothing.

If it then is the same program, it does not look at what is in them: a log may be of any length when it is called.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.kinds import Entries, Kind
from torchstone.compiler.capture.state.standins import Refusing
from torchstone.compiler.diagnostics import Unsupported


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise Unsupported("the program looks at what is in a container", stage="capture")


# What an object needs to be one; everything else of a container's class is refused.
_KEPT = frozenset(
    {
        "__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__dict__", "__doc__",
        "__module__", "__getattribute__", "__setattr__", "__delattr__", "__class_getitem__", "__weakref__", "__hash__",
    }
)  # fmt: skip


def _blind(base: Any, **adders: Callable[..., Any]) -> Any:
    refused = {name: _refuse for name in dir(base) if name not in _KEPT}
    return type(base.__name__, (base,), {**refused, **adders})


def _append(self: Any, value: Any) -> None:
    self.added[len(self.added)] = value


def _extend(self: Any, values: Iterable[Any]) -> None:
    for value in values:
        _append(self, value)


def _add_up(self: Any, values: Iterable[Any]) -> Any:
    _extend(self, values)
    return self


def _set(self: Any, key: Any, value: Any) -> None:
    self.added[key] = value


def _update(self: Any, other: Any = (), /, **more: Any) -> None:
    self.added.update(other, **more)


def _join(self: Any, other: Any) -> Any:
    self.added.update(other)
    return self


def _add(self: Any, value: Any) -> None:
    self.added[value] = value


_ORDERED = {"append": _append, "extend": _extend, "__iadd__": _add_up}
_CLASSES: Mapping[type, Any] = {
    list: _blind(list, **_ORDERED),
    collections.deque: _blind(collections.deque, **_ORDERED),
    dict: _blind(dict, __setitem__=_set, update=_update, __ior__=_join),
    set: _blind(set, add=_add),
}


def blind(base: type) -> Any:
    """Return a container of a class that takes what is added, in ``added``, and refuses to be looked at.

    What C code finds in it that asks nobody is of no use to it either.
    """
    out = _CLASSES[base].__new__(_CLASSES[base])
    poison = Refusing("what is in a container")
    if base is dict:
        dict.__setitem__(out, poison, poison)
    elif base is set:
        set.add(out, poison)
    else:
        base.append(out, poison)
    out.added = {}
    return out


class Unread:
    """Stands for an argument that the program only adds to, among the leaves: one for each class of containers."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


_UNREAD = {cls: Unread(cls) for cls in _CLASSES}
Places: TypeAlias = "frozenset[int | str]"


def unread(args: Sequence[Any], kwargs: Mapping[str, Any], places: Places) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call with those at these places, by position or by name, left unread."""

    def mark(place: int | str, value: Any) -> Any:
        return _UNREAD.get(type(value), value) if place in places else value

    return [mark(i, v) for i, v in enumerate(args)], {name: mark(name, v) for name, v in kwargs.items()}


def with_blinds(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[Any, Any]]:
    """Return arguments with blind containers for those that are left unread, and these containers by their place."""
    made = {place: blind(v.cls) for place, v in (*enumerate(args), *kwargs.items()) if isinstance(v, Unread)}
    given = [made.get(place, value) for place, value in enumerate(args)]
    return given, {name: made.get(name, value) for name, value in kwargs.items()}, made


def only_grew(obj: Any, kind: Kind, before: Entries, now: Entries) -> bool:
    """Say whether all that happened to a container may be that something was added."""
    if type(obj) not in _CLASSES or (isinstance(obj, collections.deque) and obj.maxlen is not None):
        return False
    if kind is kinds.SET or kind is kinds.DICT:
        return list(now)[: len(before)] == list(before)
    return len(now) > len(before) and all(now[key] is value for key, value in before.items())


def add(obj: Any, keys: Iterable[Any], values: Iterable[Any]) -> None:
    """Add to a container what was added to the blind one."""
    if isinstance(obj, dict):
        for key, value in zip(keys, values, strict=True):
            obj[key] = value
    elif isinstance(obj, set):
        obj.update(values)
    else:
        obj.extend(values)
