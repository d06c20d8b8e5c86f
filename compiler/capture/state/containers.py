"""Containers taken apart: lists, deques, tuples, dicts and sets, and what those of a derived class have beside."""

from __future__ import annotations

import collections
import contextlib
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.capture.state.attributes import Entries, Only, attributes_of, slots_of


@dataclass(frozen=True, slots=True)
class Beside:
    """The key of what a container has beside its elements: attributes, where its class is derived from dict say."""

    name: str


_WITHOUT = frozenset({list, dict, tuple, set, collections.OrderedDict})
_ATTRIBUTES, _FACTORY, _LENGTH = Beside("__dict__"), Beside("default_factory"), Beside("maxlen")


def show_item(label: str, key: Any) -> str:
    if isinstance(key, Beside):
        return label if key == _ATTRIBUTES else f"{label}.{key.name}"
    return f"{label}[{key!r}]"


def _with_attributes(obj: Any, entries: Entries) -> Entries:
    if type(obj) in _WITHOUT:
        return entries
    if isinstance(obj, collections.defaultdict):
        entries[_FACTORY] = obj.default_factory
    elif isinstance(obj, collections.deque):
        entries[_LENGTH] = obj.maxlen
    for name, member in slots_of(type(obj)).items():
        with contextlib.suppress(AttributeError):
            entries[Beside(name)] = member.__get__(obj)
    own = attributes_of(obj)
    if own is not None:
        entries[_ATTRIBUTES] = own
    return entries


def _elements(obj: Any, entries: Entries) -> Entries:
    """Write what a container has beside its elements, and return these."""
    if type(obj) in _WITHOUT:
        return entries
    if _FACTORY in entries:
        obj.default_factory = entries[_FACTORY]
    for name, member in slots_of(type(obj)).items():
        if Beside(name) in entries:
            member.__set__(obj, entries[Beside(name)])
        else:
            with contextlib.suppress(AttributeError):
                member.__delete__(obj)
    return {key: value for key, value in entries.items() if not isinstance(key, Beside)}


# What a class derived from a container's makes of its methods is the program's; these are Python's own.


def of_list(obj: list[Any], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(list.__iter__(obj))))


def of_deque(obj: collections.deque[Any], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(collections.deque.__iter__(obj))))


def of_tuple(obj: tuple[Any, ...], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(tuple.__iter__(obj))))


def write_list(obj: list[Any], entries: Entries, only: Only) -> None:
    list.__setitem__(obj, slice(None), list(_elements(obj, entries).values()))


def write_deque(obj: collections.deque[Any], entries: Entries, only: Only) -> None:
    elements = _elements(obj, entries)
    collections.deque.clear(obj)
    collections.deque.extend(obj, elements.values())


def _dict_of(obj: dict[Any, Any]) -> Any:
    """Return the class whose methods know a dict as it is, past those of a class derived from it."""
    return collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict


def of_dict(obj: dict[Any, Any], only: Only) -> Entries:
    return _with_attributes(obj, {key: dict.__getitem__(obj, key) for key in _dict_of(obj).__iter__(obj)})


def write_dict(obj: dict[Any, Any], entries: Entries, only: Only) -> None:
    base, entries = _dict_of(obj), _elements(obj, entries)
    kept = [key for key in base.__iter__(obj) if key in entries]
    if len(kept) < dict.__len__(obj) or kept != list(entries)[: len(kept)]:
        base.clear(obj)
    for key, value in entries.items():
        base.__setitem__(obj, key, value)


def of_set(obj: set[Any], only: Only) -> Entries:
    return _with_attributes(obj, {item: item for item in set.__iter__(obj)})


def write_set(obj: set[Any], entries: Entries, only: Only) -> None:
    elements = _elements(obj, entries)
    set.clear(obj)
    set.update(obj, elements.values())
