"""The attributes of instances and tensors, past whatever their classes make of them: read, and written."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Hashable
from typing import Any

import torch

from torchstone.compiler._torch.nn_modules import UNREAD_BY_CALLS
from torchstone.compiler._torch.tensors import OWN_ATTRIBUTES

Entries = dict[Hashable, Any]
Only = frozenset[str] | None
MISSING = object()

# What an exception keeps beside its attributes, and what raising it sets.
_RAISED = ("args", "__traceback__", "__context__", "__cause__", "__suppress_context__")


@functools.lru_cache(maxsize=1024)
def slots_of(cls: type) -> dict[str, types.MemberDescriptorType]:
    found: dict[str, types.MemberDescriptorType] = {}
    for base in cls.__mro__:
        if "__slots__" in vars(base):
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType):
                    found.setdefault(name, member)
    return found


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """Return the dict that an instance keeps its attributes in, past whatever its class makes of ``__dict__``."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _unseen(obj: Any) -> frozenset[str]:
    return UNREAD_BY_CALLS if issubclass(type(obj), torch.nn.Module) else frozenset()


def of_instance(obj: Any, only: Only) -> Entries:
    entries: Entries = {}
    for name, member in slots_of(type(obj)).items():
        with contextlib.suppress(AttributeError):
            entries[name] = member.__get__(obj)
    entries.update(attributes_of(obj) or {})
    if issubclass(type(obj), BaseException):
        entries.update({name: getattr(obj, name) for name in _RAISED})
    unseen = _unseen(obj)
    return {n: v for n, v in entries.items() if n not in unseen and (only is None or n in only)}


def write_instance(obj: Any, entries: Entries, only: Only) -> None:
    slots, own, unseen = slots_of(type(obj)), attributes_of(obj), _unseen(obj)
    if issubclass(type(obj), BaseException):
        for name in _RAISED:
            setattr(obj, name, entries[name])
        entries = {name: value for name, value in entries.items() if name not in _RAISED}
    for name, member in slots.items():
        if name in entries:
            member.__set__(obj, entries[name])
        elif only is None or name in only:
            with contextlib.suppress(AttributeError):
                member.__delete__(obj)
    if own is not None:
        gone = [n for n in own if n not in entries and n not in unseen and (only is None or n in only)]
        for name in gone:
            del own[name]
        own.update({str(name): value for name, value in entries.items() if name not in slots})


def of_tensor(obj: torch.Tensor, only: Only) -> Entries:
    own = attributes_of(obj) or {}
    return {n: v for n, v in own.items() if not n.startswith(OWN_ATTRIBUTES) and (only is None or n in only)}


def write_tensor(obj: torch.Tensor, entries: Entries, only: Only) -> None:
    own: Any = obj.__dict__
    for name in [name for name in of_tensor(obj, only) if name not in entries]:
        del own[name]
    own.update({str(name): value for name, value in entries.items()})


def plain_attributes(obj: Any) -> dict[str, Any] | None:
    """Return the dict that an instance keeps all of its attributes in, None where it has slots too."""
    own = None if slots_of(type(obj)) or issubclass(type(obj), BaseException) else attributes_of(obj)
    return own if type(own) is dict else None
