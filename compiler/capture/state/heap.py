"""The Python objects that a program reaches beside its arguments: found by walking, remembered, and put back."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchstone.compiler._torch.nn_modules import READ_BY_CALLS
from torchstone.compiler.capture.state import environment, kinds
from torchstone.compiler.capture.state.caches import Again, Given, Recalled, check_given
from torchstone.compiler.capture.state.code import CodeNames, is_user_class, is_user_function, is_user_module, names_in
from torchstone.compiler.capture.state.kinds import Entries, Kind, Only, same_entries
from torchstone.compiler.capture.state.logs import no_records
from torchstone.compiler.capture.state.nodes import Node, Slot
from torchstone.compiler.capture.state.opaque import named_by
from torchstone.compiler.capture.state.questions import Question
from torchstone.compiler.capture.state.standins import StandIn, TypeOf, real_of, stand_in
from torchstone.compiler.capture.state.tensor_attributes import SetAttributes
from torchstone.compiler.capture.state.watching import Reads, watched_class
from torchstone.compiler.diagnostics import Unsupported

# Walking takes a microsecond an object, and each call looks at them again.
_MOST_OBJECTS = 200_000
# What calling a torch.nn.Module reads of it without naming it in the user's code.
_CALLED = READ_BY_CALLS | {"forward", "training"}
_ASKS = frozenset({"hasattr", "AttributeError", "Exception", "BaseException"})
_OF_TENSOR = frozenset(dir(torch.Tensor))
_NAMED = (type, types.BuiltinFunctionType, types.FunctionType)
# Flags of CPython's types: one that was made by a class statement, and one that lets nobody set attributes.
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8
_BYTES = frozenset({"environb", "getenvb"})
_ENVIRONMENT = _BYTES | {"environ", "getenv"}
_BASES = (object, torch.nn.Module)


class Heap:
    """The objects with entries that are reached from ``roots``, each once, the roots first."""

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self.nodes: list[Node] = []
        self.tensors: dict[int, list[Slot]] = {}
        self.roots: list[int | None] = []
        self._given = [root for _, root in roots]
        self._names = CodeNames()
        self._of_globals: dict[int, CodeNames] = {}
        self._index: dict[int, int] = {}
        self._classes: dict[type, type | None] = {}
        self._variables = environment.Asked()
        self._met: set[type] = set()
        self._watched: list[tuple[Any, type]] = []
        self._reads: dict[int, Reads] = {}
        # What the program asked of loggers and caches when it last ran, and its calls that fill caches.
        self.asked: dict[Hashable, Question] = {}
        self.again: list[Again] = []
        self.given: list[Given] = []
        self._stand_ins: dict[int, Any] = {}
        self._functions_held: frozenset[str] | None = None
        self._attributes = SetAttributes()
        for label, root in roots:
            self._visit(root, label, None)
            self.roots.append(self.find(root))
        self._walk()

    def find(self, obj: Any) -> int | None:
        """Return the number of an object, None for one that was not reached."""
        return self._index.get(id(obj))

    def tensor(self, slot: Slot) -> torch.Tensor:
        """Return the tensor that was in a place before the program ran."""
        return self.nodes[slot.node].saved[slot.key]

    def holds(self, value: Any) -> bool:
        """Say whether a value that is taken apart no further was in an object before the program ran, or is a root."""
        if real_of(value) is not value:
            return True
        return any(value is root for root in self._given) or any(
            value is held for node in self.nodes for held in node.saved.values()
        )

    def reads(self, node: Node, key: Hashable) -> bool:
        """Say whether the program may read an entry: it does not where it only writes it."""
        names = self._names
        if node.kind is kinds.GLOBALS:
            return key in self._of_globals[id(node.obj)].global_loads or key in names.loads or node.only is None
        if node.seen is not None and not node.seen.everything:
            return key in node.seen.first or key in _CALLED
        if node.kind is kinds.ENVIRONMENT:
            return self.is_asked(node, key)
        if node.kind is kinds.CLASS:
            # Code that is not the user's may ask for what is there, and Python for special methods.
            return node.only is None or key in names.loads or key in _CALLED or str(key).startswith("__")
        if node.kind is kinds.TENSOR or (node.kind is kinds.INSTANCE and node.only is not None):
            return key in names.loads or key in _CALLED or names.any_attribute
        return True

    def namespaces(self) -> list[dict[str, Any]]:
        """Return the globals of the modules whose code was reached."""
        return [node.obj for node in self.nodes if node.kind is kinds.GLOBALS]

    def uses_module(self, name: str) -> bool:
        """Say whether the program names an installed module, by whatever name, or something of it."""
        held = (
            value for node in self.nodes if node.kind in (kinds.GLOBALS, kinds.CELL) for value in node.saved.values()
        )
        return name in self._names.imports or any(_library(value) == name for value in held)

    def mentions(self, names: Collection[str]) -> bool:
        """Say whether the program names one of these, or holds a function that is called so, from a module."""
        if not self._names.loads.isdisjoint(names) or not self._names.global_loads.isdisjoint(names):
            return True
        if self._functions_held is None:
            held = (v for node in self.nodes if node.kind in (kinds.GLOBALS, kinds.CELL) for v in node.saved.values())
            self._functions_held = frozenset(v.__name__ for v in held if issubclass(type(v), _NAMED))
        return not self._functions_held.isdisjoint(names)

    def attribute_set(self, results: Sequence[Any]) -> str | None:
        """Return the name of an attribute that the program sets on a tensor that had none, or on a result."""
        return self._attributes.found(results)

    @property
    def names_written(self) -> Only:
        """The attributes that the program may set, None for any."""
        return None if self._names.any_attribute else self._names.stores

    @property
    def names_missed(self) -> Only:
        """The attributes that the program may look for on a tensor that has none, None for any."""
        if self._names.any_attribute:
            return None
        asks = not _ASKS.isdisjoint(self._names.global_loads)
        return self._names.loads - _OF_TENSOR if asks else frozenset()

    @property
    def compares_identity(self) -> bool:
        """Whether the program may tell two tensors from one."""
        return self._names.identity or "id" in self._names.global_loads

    def missed(self, node: Node) -> frozenset[str] | None:
        """Return the names that the program may have looked for and not found in an object, None for any."""
        if node.seen is not None and not node.seen.everything:
            return frozenset(node.seen.first - node.saved.keys())
        if node.kind is kinds.GLOBALS and node.only is not None:
            return frozenset(name for name in node.only if self.reads(node, name))
        if node.kind is kinds.ENVIRONMENT:
            return self.only(node)
        return self._names.loads if node.only is not None else None

    def is_asked(self, node: Node, key: Hashable) -> bool:
        """Say whether an entry is one of those that the program ever asks for, or sets."""
        return node.kind is not kinds.ENVIRONMENT or self._variables.everything or key in self._variables.names

    def only(self, node: Node) -> Only:
        """Return the entries of an object that a call has to look at, None for all."""
        if node.kind is kinds.ENVIRONMENT and not self._variables.everything:
            return frozenset(self._variables.names)
        return node.only

    @property
    def looks_at_classes(self) -> bool:
        """Whether the program may notice that an object is of a class derived from its own."""
        return "type" in self._names.global_loads

    def changed(self) -> Iterator[tuple[int, Entries]]:
        """Yield the objects that have other entries than before, by number, and these entries."""
        for number, node in enumerate(self.nodes):
            if node.kind.write is not None:
                now, saved = (kinds.underived(node.obj, e) for e in (node.entries(), node.saved))
                if node.kind is kinds.ENVIRONMENT:  # libraries set their own
                    now, saved = ({n: v for n, v in e.items() if self.is_asked(node, n)} for e in (now, saved))
                if not same_entries(now, saved):
                    yield number, now

    def restore(self) -> None:
        """Give every object the entries back that it had."""
        for node in self.nodes:
            if node.kind.write is not None and not same_entries(node.entries(), node.saved):
                node.write(node.saved)

    @contextlib.contextmanager
    def standing_in(
        self,
        others: Mapping[int, Any],
        at: Mapping[Slot, Any],
        blinds: Mapping[int, Any] | None = None,
        given: Mapping[int, Any] | None = None,
    ) -> Iterator[list[Any]]:
        """In the block, objects hold other tensors in the place of tensors, by id, and other numbers ``at`` places.

        ``blinds`` are containers in the place of those with these numbers, ``given`` the tensors that the program gets
        for its arguments, by their id. Give what functions with a cache return in the block. Afterwards the objects
        have the entries that they had.
        """
        cached: list[Any] = []
        blinds = blinds or {}
        others = {**others, **{id(self.nodes[number].obj): blind for number, blind in blinds.items()}}
        self._index.update({id(blind): number for number, blind in blinds.items()})
        before = [(node, node.saved) for node in self.nodes]
        self.asked, self.again, self.given, self._stand_ins = {}, [], [], {}
        stand_ins = {**others, **(given or {})}
        for node in self.nodes:
            if node.kind is kinds.TENSOR and (other := stand_ins.get(id(node.obj))) is not None:
                node.other, node.hidden = other, frozenset(kinds.TENSOR.entries(other, None))
                node.saved = dict(node.saved)
        self._attributes.begin(self, stand_ins)
        self._watch()
        try:
            for number, node in enumerate(self.nodes):
                if node.kind.write is None:
                    continue
                entries: Entries = {
                    (others.get(id(key), key) if isinstance(key, torch.Tensor) else key): (
                        at[Slot(number, key)] if Slot(number, key) in at else self._other(value, others, cached)
                    )
                    for key, value in node.saved.items()
                }
                if node.other is not None or not same_entries(entries, node.saved):
                    node.write(entries)
                    node.saved = entries
            self._tell_types()
            told = self.find(environment.data()) is not None
            with no_records(self.asked), self._variables.noted() if told else contextlib.nullcontext():
                yield cached
            check_given(self.given)
        finally:
            for obj, cls in self._watched:
                object.__setattr__(obj, "__class__", cls)
            self._watched.clear()
            for blind in blinds.values():
                del self._index[id(blind)]
            for node, saved in before:
                node.saved = saved
            self.restore()
            for node in self.nodes:
                node.other, node.hidden = None, frozenset()
            self._attributes.end()

    def _watch(self) -> None:
        """Give instances a class that notes what they are asked, where the program does not look at their class."""
        if self._names.any_attribute or self.looks_at_classes:
            return
        for node in self.nodes:
            if node.kind is not kinds.INSTANCE:
                continue
            cls = type(node.obj)
            if cls not in self._classes:
                self._classes[cls] = watched_class(cls, self._reads)
            try:
                object.__setattr__(node.obj, "__class__", self._classes[cls] or cls)
            except TypeError:  # its instances are laid out in memory in another way
                continue
            if type(node.obj) is not cls:
                self._watched.append((node.obj, cls))
                node.seen = node.seen or Reads()
                node.seen.written.clear()
                self._reads[id(node.obj)] = node.seen

    @contextlib.contextmanager
    def standing_in_place(self) -> Iterator[None]:
        """In the block, objects count as changed that have other entries than when it began, which they then get back.

        torch.export puts tensors of its own into modules before it calls them.
        """
        before = [(node, node.saved) for node in self.nodes]
        try:
            for node in self.nodes:
                node.saved = node.entries()
            with self.standing_in({}, {}):
                yield
        finally:
            for node, saved in before:
                node.saved = saved

    def _other(self, value: Any, others: Mapping[int, Any], cached: list[Any]) -> Any:
        if id(value) in others:
            return others[id(value)]
        if issubclass(type(value), tuple) and not isinstance(value, torch.Size):
            items = [self._other(item, others, cached) for item in value]
            if all(one is other for one, other in zip(items, value, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if type(type(value).__getattribute__) is types.FunctionType:  # which would be asked what it is
            return value
        if (bound := _bound_to(value, others)) is not None:
            return bound
        number = self._index.get(id(value))
        if number is not None and self.nodes[number].kind not in (kinds.METHOD, kinds.BOUND):
            return value
        if id(value) not in self._stand_ins:
            if isinstance(value, functools._lru_cache_wrapper):
                other: Any = Recalled(value, cached, self)
            elif (other := stand_in(value)) is value:
                return value
            self._stand_ins[id(value)] = other
        return self._stand_ins[id(value)]

    def _tell_types(self) -> None:
        """Let ``type`` tell the class of what an object stands for, where the program names it and there are such."""
        if not (self.looks_at_classes and any(isinstance(o, StandIn) for o in self._stand_ins.values())):
            return
        tell = TypeOf()
        for node in self.nodes:
            if node.kind is kinds.GLOBALS and "type" in self._of_globals[id(node.obj)].global_loads - node.saved.keys():
                node.saved = {**node.saved, "type": tell}
                node.write(node.saved)

    def snapshot(self) -> Callable[[], bool]:
        """Return what says whether objects have other entries than now."""
        was = [node.entries() for node in self.nodes]
        return lambda: any(not same_entries(n.entries(), w) for n, w in zip(self.nodes, was, strict=True))

    def _walk(self) -> None:
        """Take every object apart; again, as long as code is found that names more of them."""
        names = None
        while names != (names := (self._names, dict(self._of_globals))):
            if not _ENVIRONMENT.isdisjoint(self._names.loads | self._names.global_loads):
                self._visit_environment()
            if self._names.namespaces:  # a module may be had by its name
                for name in self._names.loads & sys.modules.keys():
                    if is_user_module(sys.modules[name]):
                        self._visit(sys.modules[name], name, None)
            done = 0
            while done < len(self.nodes):
                node = self.nodes[done]
                node.only = self._only(node)
                now = node.entries()
                fresh = [key for key in now if key not in node.saved]
                node.saved = now
                for key in fresh:
                    self._visit(now[key], node.kind.show(node.label, key), Slot(done, key))
                done += 1

    def _only(self, node: Node) -> Only:
        """Return the entries of an object that the program can name, None where that may be any."""
        named = self._names.loads | self._names.stores
        if node.kind is kinds.GLOBALS:
            names = self._of_globals[id(node.obj)]
            module = sys.modules.get(node.obj.get("__name__", ""))
            seen = self._names.namespaces or (module is not None and self.find(module) is not None)
            if names.any_global or (seen and self._names.any_attribute):
                return None
            return names.global_loads | names.global_stores | (named if seen else frozenset())
        if node.kind is kinds.LIBRARY:  # where the program may have put code of its own
            own = (n for n, v in vars(node.obj).items() if type(v) is types.FunctionType and is_user_function(v))
            return named | _CALLED | frozenset(own)
        if node.kind is kinds.TENSOR:
            return None if self._names.any_attribute else named
        cls = node.obj if node.kind is kinds.CLASS else type(node.obj)
        if self._names.any_attribute or node.kind not in (kinds.CLASS, kinds.INSTANCE):
            return None
        return named | _CALLED if all(b in _BASES or is_user_class(b) for b in cls.__mro__) else None

    def _visit(self, value: Any, label: str, place: Slot | None) -> None:
        self._visit_classes(value)
        if issubclass(type(value), torch.Tensor):
            if is_lazy(value):
                raise Unsupported(
                    f"{label} is a parameter that the module's first call makes; call it once before", stage="capture"
                )
            if place is not None:
                self.tensors.setdefault(id(value), []).append(place)
            if id(value) not in self._index and kinds.TENSOR.entries(value, None):
                self._add(value, kinds.TENSOR, label, place)
            return
        if type(value) is functools._lru_cache_wrapper:
            value, place = value.__wrapped__, None
        if named := named_by(value):
            self._names |= CodeNames(loads=named)
        kind = _kind(value)
        if place is not None:
            kind = kinds.kind_of_entry(self.nodes[place.node].obj, place.key, kind)
        if kind is None or id(value) in self._index:
            return
        if kind is kinds.FUNCTION and not is_user_function(value):
            library = place is not None and self.nodes[place.node].kind is kinds.LIBRARY
            if library or not value.__closure__:
                return
        self._add(value, kind, label, place)
        if kind is kinds.FUNCTION and is_user_function(value):
            names = names_in(value.__code__)
            self._names |= names
            self._enter(value.__globals__, names)
            for name in names.imports:
                self._visit(sys.modules.get(name), name, None)
        elif kind is kinds.MODULE:
            self._enter(vars(value), CodeNames())
        elif kind is kinds.CLASS:
            for base in value.__mro__[1:]:
                self._visit(base, base.__name__, None)
            for member in vars(value).values():
                for function in _functions(member):
                    self._visit(function, function.__qualname__, None)

    def _visit_classes(self, value: Any) -> None:
        """Take the classes apart that are the user's, whatever kind of object is of them."""
        cls = type(value)
        if cls not in self._met:
            self._met.add(cls)
            for base in cls.__mro__:
                self._visit(base, base.__name__, None)

    def _visit_environment(self) -> None:
        self._variables.everything = not _BYTES.isdisjoint(self._names.loads | self._names.global_loads)
        if self.find(environment.data()) is None:
            self._add(environment.data(), kinds.ENVIRONMENT, "os.environ", None)

    def _add(self, value: Any, kind: Kind, label: str, place: Slot | None) -> None:
        if len(self.nodes) == _MOST_OBJECTS:
            raise Unsupported(f"the program reaches more than {_MOST_OBJECTS} Python objects", stage="capture")
        self._index[id(value)] = len(self.nodes)
        self.nodes.append(Node(value, kind, label, place))

    def _enter(self, namespace: dict[str, Any], names: CodeNames) -> None:
        self._of_globals[id(namespace)] = self._of_globals.get(id(namespace), CodeNames()) | names
        if id(namespace) not in self._index:
            self._add(namespace, kinds.GLOBALS, "", None)


def _kind(value: Any) -> Kind | None:
    cls = type(value)  # an object's own __class__ would be asked of code of the user's
    if issubclass(cls, type):
        if is_user_class(value):
            return kinds.CLASS
        return kinds.LIBRARY if value.__flags__ & _HEAP_TYPE and not value.__flags__ & _IMMUTABLE else None
    if issubclass(cls, types.ModuleType):
        return kinds.MODULE if is_user_module(value) else kinds.LIBRARY
    return kinds.kind_of(value)


def _library(value: Any) -> str:
    """Return the name of the package that a value is of."""
    cls = type(value)
    if issubclass(cls, types.ModuleType):
        return value.__name__.partition(".")[0]
    named = issubclass(cls, type | types.FunctionType | types.BuiltinFunctionType)
    return str((value if named else cls).__module__ or "").partition(".")[0]


def _bound_to(value: Any, others: Mapping[int, Any]) -> Any:
    """Return what refers to another tensor as a value does to one that has another in its place; None for the rest."""
    cls = type(value)
    if cls is weakref.ref and id(value()) in others:
        return weakref.ref(others[id(value())])
    if cls is types.MethodType and id(value.__self__) in others:
        return types.MethodType(value.__func__, others[id(value.__self__)])
    if cls is types.BuiltinMethodType and id(value.__self__) in others:
        return getattr(others[id(value.__self__)], value.__name__)
    return None


def _functions(member: Any) -> list[types.FunctionType]:
    """Return the functions that a member of a class is or holds: methods, properties, and those of decorators."""
    if isinstance(member, types.FunctionType):
        return []  # an entry
    inner = [getattr(member, name, None) for name in ("__func__", "__wrapped__", "func")]
    return [f for f in inner if isinstance(f, types.FunctionType)]
