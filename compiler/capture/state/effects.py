"""What a program does to Python's objects: read off after a run that captured it, done again by every call."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.tensors import is_marked_parameter
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.blame import Effectful
from torchstone.compiler.capture.state.blind import add, only_grew
from torchstone.compiler.capture.state.checks import Found, State
from torchstone.compiler.capture.state.heap import Heap
from torchstone.compiler.capture.state.keys import told, told_spec
from torchstone.compiler.capture.state.kinds import ATOMS, Entries, Kind, same_entries
from torchstone.compiler.capture.state.made import LEAF, can_make, filled, made_of
from torchstone.compiler.capture.state.standins import real_of
from torchstone.compiler.capture.symbolic.numbers import NUMBERS
from torchstone.compiler.diagnostics import Unsupported


@dataclass(frozen=True, slots=True)
class Existing:
    """A leaf of a result that is an object of the caller's: one of the state's, or a container of the arguments.

    ``place`` is the position or the name of an argument that the program does not look into.
    """

    number: int
    argument: bool
    place: int | str | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """The entries that an object has after a call: ``keys``, some of them ``new``, values nested as in ``spec``."""

    target: Existing
    kind: Kind
    keys: tuple[Hashable, ...]
    new: tuple[Hashable, ...]
    spec: pytree.TreeSpec
    added: bool = False  # whatever the entries before are, they stay, and so there are no keys
    grew: bool = False  # all that happened may be that something was added


class Containers:
    """The containers among a program's arguments, in the order in which they are flattened."""

    def __init__(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        self.found: list[Any] = []
        self._index: dict[int, int] = {}
        pytree.tree_flatten((tuple(args), dict(sorted(kwargs.items()))), is_leaf=self._meet)
        # The tuple of the arguments and the dict of those given by name are of the call.
        self.found = self.found[1:]
        for obj in self.found:
            self._index.setdefault(id(obj), len(self._index))
        self.twice = len(self._index) < len(self.found)
        self.before: list[tuple[Kind | None, Entries]] = []

    def _meet(self, node: Any) -> bool:
        if pytree.is_container(node):
            self.found.append(node)
        return False

    def remember(self) -> None:
        """Note the entries that each has."""
        for obj in self.found:
            kind = kinds.kind_of(obj)
            self.before.append((kind, {} if kind is None else kind.entries(obj, None)))

    def find(self, obj: Any) -> int | None:
        """Return the number of a container that can change, None for anything else."""
        number = self._index.get(id(obj))
        if number is None or isinstance(obj, tuple):
            return None
        return number

    def mutable(self) -> list[Any]:
        """Return those that a program may write to."""
        return [obj for obj in self.found if not isinstance(obj, tuple)]

    def changed(self) -> Iterator[tuple[int, Kind, Entries, Entries]]:
        """Yield the number of each that has other entries than before, its kind, those before and those now."""
        for number, (obj, (kind, before)) in enumerate(zip(self.found, self.before, strict=True)):
            if kind is not None and kind.write is not None:
                now = kind.entries(obj, None)
                if not same_entries(now, before):
                    yield number, kind, before, now


class Observed:
    """What a run returned and did: the leaves of its result, then those of the entries that it made.

    Unsupported for what no call could make again, and for one container or object in two places. ``made`` are the
    objects that each call makes again, of their class and their attributes.
    """

    def __init__(
        self, out: Any, heap: Heap, containers: Containers, blinds: Mapping[int, Any], unread: Mapping[Any, Any]
    ) -> None:
        self.effects: list[Effect] = []
        self._heap = heap
        self._containers = containers
        self._met: set[int] = set()
        self.made: list[Any] = []
        self._unread = {id(obj): Existing(0, True, place) for place, obj in unread.items()}
        self.leaves, self.out_spec = self._flatten(out)
        changed = dict(heap.changed())
        check_attributes(heap, self.leaves)
        for number, node in enumerate(heap.nodes):
            if number in changed and node.kind is kinds.ENVIRONMENT:
                raise Effectful("the program sets an environment variable, which no graph can do", number)
            if number in changed:
                self._note(Existing(number, False), node.kind, node.label, node.saved, changed[number], node.obj)
            elif number in blinds and blinds[number].added:
                self._note(Existing(number, False), node.kind, node.label, {}, blinds[number].added, added=True)
        for number, kind, before, now in containers.changed():
            if containers.twice:
                raise Effectful("the program writes to what is among its arguments twice", number, argument=True)
            self._note(Existing(number, True), kind, "an argument", before, now, containers.found[number])
        for obj in unread.values():
            if obj.added:
                self._note(self._unread[id(obj)], kinds.LIST, "an argument", {}, obj.added, added=True)

    def _note(
        self,
        target: Existing,
        kind: Kind,
        label: str,
        before: Entries,
        now: Entries,
        obj: Any = None,
        *,
        added: bool = False,
    ) -> None:
        new = {key: value for key, value in now.items() if key not in before or before[key] is not value}
        try:
            for key in now:
                _check_written(kind, label, key, new.get(key))
            leaves, spec = self._flatten(list(new.values()))
        except Unsupported as error:
            raise Effectful(error.message, target.number, argument=target.argument) from None
        self.leaves += leaves
        grew = not added and only_grew(obj, kind, before, now)
        self.effects.append(Effect(target, kind, tuple(now), tuple(new), spec, added, grew))

    def _flatten(self, tree: Any) -> tuple[list[Any], pytree.TreeSpec]:
        # PyTorch's pytree would take a Size apart and put a tuple together.
        leaves, spec = pytree.tree_flatten(tree, is_leaf=self._is_leaf)
        parts = [self._opened(leaf) for leaf in leaves]
        specs = iter([spec for _, spec in parts])
        return [leaf for part, _ in parts for leaf in part], told_spec(filled(spec, specs))

    def _opened(self, value: Any) -> tuple[list[Any], pytree.TreeSpec]:
        """Take an object apart that the program has made; what it has not made, or nobody can make, is a leaf."""
        if self._existing(value) is not None or not can_make(value):
            return [self._leaf(value)], LEAF
        self._meet(value)
        self.made.append(value)
        entries = kinds.INSTANCE.entries(value, None)
        leaves, spec = self._flatten(list(entries.values()))
        return leaves, made_of(type(value), tuple(map(str, entries)), spec)

    def _is_leaf(self, node: Any) -> bool:
        if isinstance(node, torch.Size) or self._existing(node) is not None:
            return True
        if not isinstance(node, tuple) and type(node) in pytree.SUPPORTED_NODES:
            self._meet(node)
        return False

    def _meet(self, node: Any) -> None:
        if id(node) in self._met:
            what = type(node).__name__
            raise Unsupported(f"the program makes a {what} and puts it in two places", stage="capture")
        self._met.add(id(node))

    def _leaf(self, value: Any) -> Any:
        if issubclass(type(value), (torch.Tensor, *NUMBERS)):
            return value
        existing = self._existing(value)
        if existing is None:
            value = told(value)
            _check_plain(value, self._heap)
        return real_of(value) if existing is None else existing

    def _existing(self, value: Any) -> Existing | None:
        if issubclass(type(value), (torch.Tensor, tuple, *ATOMS)):
            return None
        if id(value) in self._unread:
            return self._unread[id(value)]
        number = self._containers.find(value)
        if number is not None:
            return Existing(number, True)
        number = self._heap.find(value)
        return None if number is None else Existing(number, False)


def check_attributes(heap: Heap, results: Sequence[Any]) -> None:
    """Unsupported where the program sets an attribute of a tensor that had none, or of a result."""
    if (name := heap.attribute_set(results)) is not None:
        why = f"the program sets the attribute {name} of a tensor that had none, or of a result"
        raise Effectful(why, changed=lambda: heap.attribute_set(()) is not None)


def _check_written(kind: Kind, label: str, key: Hashable, value: Any) -> None:
    tensor = issubclass(type(value), torch.Tensor)
    if tensor and (isinstance(value, torch.nn.Parameter) or is_marked_parameter(value)):
        raise Unsupported(
            f"the program puts another parameter in the place of {kind.show(label, key)}; write to it instead, as "
            "copy_() does",
            stage="capture",
        )
    if isinstance(key, torch.Tensor):
        raise Unsupported(f"the program writes to {label}, whose keys are tensors", stage="capture")


def _check_plain(value: Any, heap: Heap) -> None:
    """Unsupported for a value that is not the same at every call, and that nobody could make again."""
    atoms = isinstance(value, set | frozenset) and all(isinstance(item, ATOMS) for item in value)
    library = isinstance(value, types.FunctionType) and not value.__closure__
    plain = isinstance(value, (*ATOMS, type, types.ModuleType, types.BuiltinFunctionType, torch.finfo, torch.iinfo))
    if not (plain or atoms or library or heap.holds(value)):
        raise Unsupported(
            f"the program makes a {type(value).__name__}, which a call could not make again; return its tensors",
            stage="capture",
        )


def replay(
    effects: Sequence[Effect], leaves: Sequence[Any], resolve: Callable[[Existing], Any], state: State, found: Found
) -> None:
    """Do to a call's objects, ``found``, what the program did; ``leaves`` are those of the new entries."""
    rest = iter(leaves)
    todo: list[tuple[Effect, Entries]] = []
    grown: list[tuple[Effect, list[Any]]] = []
    for effect in effects:
        values = pytree.tree_unflatten([next(rest) for _ in range(effect.spec.num_leaves)], effect.spec)
        if effect.added:
            grown.append((effect, values))
            continue
        new = dict(zip(effect.new, values, strict=True))
        number = effect.target.number
        before = effect.kind.entries(resolve(effect.target), None) if effect.target.argument else None
        before = found.entries[number] if before is None else before
        todo.append((effect, {key: new[key] if key in new else before[key] for key in effect.keys}))
    for effect, values in grown:
        add(resolve(effect.target), effect.new, values)
    for effect, entries in todo:
        if effect.target.argument:
            assert effect.kind.write is not None
            effect.kind.write(resolve(effect.target), entries, None)
        else:
            state.write(found, effect.target.number, entries)
