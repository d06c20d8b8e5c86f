"""What a call finds of the objects that a program reached, held against what they were when it was compiled."""

from __future__ import annotations

import collections
import inspect
import itertools
import operator
import types
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.attributes import attributes_of, plain_attributes
from torchstone.compiler.capture.state.heap import Heap, Node, Slot
from torchstone.compiler.capture.state.kinds import ATOMS, MISSING, Kind, Only, same_keys
from torchstone.compiler.capture.state.questions import check_answers
from torchstone.compiler.capture.state.settings import read_settings
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ops.control import same_number

# Kinds whose entries have all to be there, and no others.
_WHOLE = (kinds.LIST, kinds.DEQUE, kinds.DICT, kinds.MEMBERS, kinds.SET, kinds.TUPLE)
# Kinds that have more entries than a program asks for, and of which there is one by that name.
_OPEN = (kinds.INSTANCE, kinds.TENSOR, kinds.VALUE, kinds.CLASS, kinds.GLOBALS, kinds.ENVIRONMENT)
_ONE = (kinds.CLASS, kinds.GLOBALS, kinds.MODULE, kinds.LIBRARY)
# Containers that hold nothing but their entries, and whose methods are Python's.
_MISSING = itertools.repeat(MISSING)
_PLAIN = frozenset({list, tuple, set, dict, collections.OrderedDict, collections.deque})


@dataclass(slots=True)
class _Object:
    """What one object has to be: ``obj`` if it is always the same, else the one in a place of an earlier object."""

    kind: Kind
    label: str
    only: Only
    cls: type
    obj: Any
    place: Slot | None
    root: int | None
    keys: list[Hashable] | None = None  # all that there are to be
    never: frozenset[str] | None = None  # what an instance must not have beside its entries, if it has others
    had: frozenset[Hashable] = frozenset()
    constants: list[tuple[Hashable, Any]] = field(default_factory=list)
    tensors: list[tuple[Hashable, torch.dtype, torch.Size]] = field(default_factory=list)
    objects: list[tuple[Hashable, int]] = field(default_factory=list)

    def show(self, key: Hashable) -> str:
        return self.kind.show(self.label, key)


@dataclass(slots=True)
class Found:
    """The objects of a call, in the order of the state's, and the entries that each has."""

    objects: list[Any] = field(default_factory=list)
    entries: list[Mapping[Hashable, Any]] = field(default_factory=list)


class State:
    """The objects that a captured program reached. ``find`` looks them up for a call and holds them against the past.

    ``numbers`` are places whose numbers are arguments of the graph: they may be any. ``blind`` are objects that the
    program does not look into. Where it ``changes`` none, the objects of a call are most often those of the last one.
    """

    def __init__(
        self, heap: Heap, numbers: Collection[Slot] = (), blind: Collection[int] = (), *, changes: bool = False
    ) -> None:
        self.numbers = list(numbers)
        self._objects = [self._object(heap, number, node) for number, node in enumerate(heap.nodes)]
        for number, obj in enumerate(self._objects):  # what is looked up in a place is what is in it
            obj.objects = [(key, n) for key, n in obj.objects if self._objects[n].place != Slot(number, key)]
        loose = set(self.numbers)
        for number, obj in enumerate(self._objects):
            obj.constants = [(key, want) for key, want in obj.constants if Slot(number, key) not in loose]
            if number in blind:
                obj.keys, obj.constants, obj.tensors, obj.objects = None, [], [], []
        self._questions, self.again = [*heap.asked.values(), *read_settings(heap.mentions)], list(heap.again)
        self._checked = bool(self._questions or self.again) or any(
            o.constants or o.tensors or o.objects or o.keys or o.never for o in self._objects
        )
        self._lasting = not changes and not any(o.root for o in self._objects)
        self._last: Found | None = None
        self._held: list[tuple[Any, type, Kind, Only, list[Any]]] = []
        self._empty: list[Any] = []
        self._dicts: list[tuple[dict[Any, Any], list[Any], list[Any]]] = []
        self._owners: list[tuple[Any, type, dict[str, Any]]] = []
        self._named: list[tuple[Callable[[str, Any], Any], list[str], list[Any]]] = []

    def __bool__(self) -> bool:
        """Say whether there is anything to look at."""
        return self._checked

    def _object(self, heap: Heap, number: int, node: Node) -> _Object:
        root = next((i for i, n in enumerate(heap.roots) if n == number), None)
        place = None if node.kind in _ONE else node.place
        stays = node.kind in _ONE or (place is None and (root is None or root == 0))
        out = _Object(
            node.kind,
            node.label,
            frozenset(map(str, node.saved)) if node.kind is kinds.LIBRARY else heap.only(node),
            type(node.obj),
            node.obj if stays else None,
            place,
            root,
        )
        if node.kind in _WHOLE:
            out.keys = list(node.saved)
        elif node.kind in _OPEN:
            out.had = frozenset(key for key in node.saved if heap.is_asked(node, key))
            out.never = heap.missed(node)
        for key, value in node.saved.items():
            if not heap.reads(node, key):
                continue
            inner = heap.find(value)
            if tensor := issubclass(type(value), torch.Tensor):
                out.tensors.append((key, value.dtype, value.shape))
            if inner is not None:
                out.objects.append((key, inner))
            if not tensor and (inner is None or heap.nodes[inner].kind is kinds.VALUE):
                out.constants.append((key, value))
        return out

    def find(self, leaves: Sequence[Any]) -> Found:
        """Return the objects of a call with these leaves; GuardError, with the place, where one is another now."""
        if self._questions:
            check_answers(self._questions)
        if self._last is not None and self._unchanged():
            return self._last
        found = Found()
        for number, want in enumerate(self._objects):
            if want.place is not None:
                obj = found.entries[want.place.node].get(want.place.key, MISSING)
            elif want.obj is None and want.root is not None:
                obj = leaves[want.root - 1]
            else:
                obj = want.obj
            if type(obj) is not want.cls:
                raise GuardError(f"{want.label} {_was(want.cls, obj)}")
            found.objects.append(obj)
            found.entries.append(want.kind.entries(obj, want.only))
            self._check(found, number, want)
        for number, want in enumerate(self._objects):
            for key, inner in want.objects:
                if found.entries[number].get(key, MISSING) is not found.objects[inner]:
                    other = self._objects[inner].label
                    were = f"and {other} were one object" if other != want.show(key) else "was another object"
                    raise GuardError(f"{want.show(key)} {were} when compiled")
        if self._lasting:
            self._remember(found)
        return found

    def _unchanged(self) -> bool:
        """Say whether all objects are what they were when they were last looked up: the same, holding the same ones."""
        if any(self._empty):
            return False
        same = operator.is_
        for own, keys, values in self._dicts:
            if len(own) != len(keys) or not all(map(same, own, keys)) or not all(map(same, own.values(), values)):
                return False
        for get, names, values in self._named:
            if not all(map(same, map(get, names, _MISSING), values)):
                return False
        for obj, cls, own in self._owners:
            if type(obj) is not cls or attributes_of(obj) is not own:
                return False
        for obj, cls, kind, only, held in self._held:
            if type(obj) is not cls:
                return False
            now = kinds.peek(obj, kind, only)
            if len(now) != len(held) or not all(map(same, now, held)):
                return False
        return True

    def _remember(self, found: Found) -> None:
        self._last = found
        self._dicts, self._owners, self._held, self._empty, self._named = [], [], [], [], []
        for obj, want in zip(found.objects, self._objects, strict=True):
            own = plain_attributes(obj) if want.kind in (kinds.INSTANCE, kinds.TENSOR) else None
            if want.cls in _PLAIN and want.kind in _WHOLE and not obj and want.cls is not tuple:
                self._empty.append(obj)
            elif want.cls in _PLAIN and isinstance(obj, dict) and want.kind is not kinds.GLOBALS:
                self._dicts.append((obj, list(obj), list(obj.values())))
            elif own is not None:
                self._dicts.append((own, list(own), list(own.values())))
                self._owners.append((obj, want.cls, own))
            elif want.kind in (kinds.GLOBALS, kinds.LIBRARY) and want.only is not None:
                space = obj if want.kind is kinds.GLOBALS else vars(obj)
                names = list(want.only)
                if names:
                    self._named.append((space.get, names, [space.get(name, MISSING) for name in names]))
            elif want.kind is not kinds.MODULE and want.cls is not tuple:  # a tuple of the same values stays the same
                self._held.append((obj, want.cls, want.kind, want.only, kinds.peek(obj, want.kind, want.only)))

    def tensor(self, found: Found, slots: Sequence[Slot]) -> torch.Tensor:
        """Return the tensor that is in all of these places; GuardError where there are several, or none."""
        values = [found.entries[slot.node].get(slot.key) for slot in slots]
        if not isinstance(values[0], torch.Tensor):
            raise GuardError(f"{self.show(slots[0])} was a tensor when compiled, is {values[0]!r}")
        for slot, value in zip(slots, values, strict=True):
            if value is not values[0]:
                one, other = self.show(slots[0]), self.show(slot)
                raise GuardError(f"{one} and {other} were one tensor when compiled, are two")
        return values[0]

    def number(self, found: Found, slot: Slot) -> Any:
        """Return the number that is in a place now."""
        return found.entries[slot.node].get(slot.key)

    def write(self, found: Found, number: int, entries: dict[Hashable, Any]) -> None:
        """Give an object of a call other entries."""
        want = self._objects[number]
        assert want.kind.write is not None
        want.kind.write(found.objects[number], entries, want.only)

    def check_distinct(self, found: Found, more: Sequence[Any]) -> None:
        """GuardError where two objects that were two when compiled are one now: what is written to both is in one."""
        mutable = [o for o, want in zip(found.objects, self._objects, strict=True) if want.kind.write is not None]
        if len({id(o) for o in (*mutable, *more)}) < len(mutable) + len(more):
            raise GuardError("two of the objects that the program writes to were two when compiled, are one now")

    def show(self, slot: Slot) -> str:
        """Return how a place reads in a message."""
        return self._objects[slot.node].show(slot.key)

    def _check(self, found: Found, number: int, want: _Object) -> None:
        now = found.entries[number]
        if want.keys is not None and not (len(now) == len(want.keys) and same_keys(now, want.keys)):
            raise GuardError(f"{want.label} {_other_entries(want, now)}")
        if want.kind in _OPEN and now.keys() != want.had:
            new = [name for name in now if name not in want.had and _is_looked_for(want, name)]
            if new:
                raise GuardError(f"{want.show(new[0])} was not there when compiled")
        for key, value in want.constants:
            other = now.get(key, MISSING)
            if other is not value and not _same(value, other) and not _wraps_the_same(value, other):
                raise GuardError(_changed(want, key, value, other))
        for key, dtype, shape in want.tensors:
            other = now.get(key, MISSING)
            if not issubclass(type(other), torch.Tensor):
                raise GuardError(f"{want.show(key)} was a tensor when compiled, is {_shown(other)}")
            if other.dtype is not dtype or other.shape != shape:
                was = f"{_type(dtype)}{list(shape)}"
                raise GuardError(
                    f"{want.show(key)} was {was} when compiled, is {_type(other.dtype)}{list(other.shape)}"
                )


_NAMED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def _is_looked_for(want: _Object, name: Any) -> bool:
    special = want.kind is kinds.CLASS and name.startswith("__")  # Python asks for it by itself
    return want.never is None or special or name in want.never


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or not issubclass(type(one), ATOMS):
        return False
    if isinstance(one, int | float | complex):
        return same_number(one, other)
    return one == other


def _wraps_the_same(one: Any, other: Any) -> bool:
    """Whether two are one function of PyTorch's. TorchDynamo wraps some when it is imported, which a program's own
    first call of ``torch.manual_seed`` does."""
    if not (isinstance(one, types.FunctionType) and isinstance(other, types.FunctionType)):
        return False
    return (one.__module__ or "").startswith("torch.") and inspect.unwrap(one) is inspect.unwrap(other)


def _changed(want: _Object, key: Hashable, value: Any, other: Any) -> str:
    if key == "training" and issubclass(want.cls, torch.nn.Module):
        was, now = ("training", "evaluation")[:: 1 if value else -1]
        return f"{want.cls.__name__} was in {was} mode when compiled, is in {now} mode"
    if want.kind is kinds.ARRAY:
        return f"{want.label} holds other numbers than when compiled, and they are part of the program"
    if want.kind is kinds.FUNCTION and key == ("code", ""):
        return f"{want.label} is another function than when compiled"
    return f"{want.show(key)} was {_shown(value)} when compiled and is part of the program, is {_shown(other)}"


def _other_entries(want: _Object, now: Mapping[Hashable, Any]) -> str:
    assert want.keys is not None
    if want.kind in (kinds.DICT, kinds.MEMBERS, kinds.SET):
        new = [key for key in now if key not in want.keys] or [key for key in want.keys if key not in now]
        if new:
            return f"has {'no' if new[0] in want.keys else 'an'} entry {new[0]!r} now, and is part of the program"
        return "has its entries in another order than when compiled"
    return f"had {len(want.keys)} entries when compiled, has {len(now)}"


def _was(cls: type, obj: Any) -> str:
    return f"was a {cls.__name__} when compiled, is {_shown(obj)}"


def _shown(value: Any) -> str:
    if value is MISSING:
        return "gone"
    if isinstance(value, torch.Tensor):
        return f"a tensor {_type(value.dtype)}{list(value.shape)}"
    name = getattr(value, "__name__", None) if isinstance(value, _NAMED) else None
    return repr(value) if isinstance(value, ATOMS) else name or f"a {type(value).__name__}"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
