"""What a program does to Python's objects: read off after a run that captured it, done again by every call."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.numbers import NUMBERS
from torchstone.compiler.frontends.state import kinds
from torchstone.compiler.frontends.state.checks import State
from torchstone.compiler.frontends.state.heap import Heap
from torchstone.compiler.frontends.state.kinds import ATOMS, Entries, Kind, same_entries


@dataclass(frozen=True, slots=True)
class Existing:
    """A leaf of a result that is an object of the caller's: one of the state's, or a container of the arguments."""

    number: int
    argument: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """The entries that an object has after a call: some of those before, by their key, and new ones.

    A new one is the leaf of the results that ``new`` gives its place among the values of this effect.
    """

    target: Existing
    kind: Kind
    keys: tuple[Hashable, ...]
    new: Mapping[Hashable, int]


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
        if type(node) in pytree.SUPPORTED_NODES or pytree.is_namedtuple_instance(node):
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


@dataclass(slots=True)
class Observed:
    """What a run gave and did: the leaves of its result, then those of the entries that it made."""

    leaves: list[Any]
    out_spec: pytree.TreeSpec
    spec: pytree.TreeSpec | None
    effects: list[Effect]


def observe(out: Any, heap: Heap, containers: Containers) -> Observed:
    """Take apart what a program returned, and what it made of the objects it reached.

    Unsupported for what no call could make again: an object of a class of its own, or one container in two places.
    """
    effects: list[Effect] = []
    made: list[list[Any]] = []

    def note(target: Existing, kind: Kind, label: str, before: Entries, now: Entries) -> None:
        new = {key: value for key, value in now.items() if key not in before or before[key] is not value}
        for key, value in new.items():
            _check_written(kind, label, key, value)
        effects.append(Effect(target, kind, tuple(now), {key: place for place, key in enumerate(new)}))
        made.append(list(new.values()))

    for number, now in heap.changed():
        node = heap.nodes[number]
        note(Existing(number, False), node.kind, node.label, node.saved, now)
    changed = list(containers.changed())
    if changed and containers.twice:
        raise Unsupported("the program writes to a container that is among its arguments twice", stage="capture")
    for number, kind, before, now in changed:
        note(Existing(number, True), kind, "an argument", before, now)

    met: set[int] = set()

    def is_leaf(node: Any) -> bool:
        if isinstance(node, torch.Size) or _existing(node, heap, containers) is not None:
            return True
        if not isinstance(node, tuple) and type(node) in pytree.SUPPORTED_NODES:
            if id(node) in met:
                raise Unsupported(f"the program makes a {type(node).__name__} and puts it in two places", stage="capture")
            met.add(id(node))
        return False

    def leaf(value: Any) -> Any:
        existing = _existing(value, heap, containers)
        if existing is not None:
            return existing
        if not isinstance(value, (torch.Tensor, *NUMBERS)):
            _check_plain(value, heap)
        return value

    flat, out_spec = pytree.tree_flatten(out, is_leaf=is_leaf)
    spec = None
    if effects:
        more, spec = pytree.tree_flatten(made, is_leaf=is_leaf)
        flat = [*flat, *more]
    return Observed([leaf(value) for value in flat], out_spec, spec, effects)


def _existing(value: Any, heap: Heap, containers: Containers) -> Existing | None:
    if isinstance(value, (torch.Tensor, tuple, *ATOMS)):
        return None
    number = containers.find(value)
    if number is not None:
        return Existing(number, True)
    number = heap.find(value)
    return None if number is None else Existing(number, False)


def _check_written(kind: Kind, label: str, key: Hashable, value: Any) -> None:
    if isinstance(value, torch.nn.Parameter) or getattr(value, "_is_param", False):
        raise Unsupported(
            f"the program puts another parameter in the place of {kind.show(label, key)}; write to it instead, as "
            "copy_() does",
            stage="capture",
        )
    if isinstance(key, torch.Tensor):
        raise Unsupported(f"the program puts a tensor into {label} as a key", stage="capture")


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
    effects: Sequence[Effect],
    values: Sequence[Sequence[Any]],
    resolve: Callable[[Existing], Any],
    state: State | None,
    found: Sequence[Any],
) -> None:
    """Do to a call's objects what the program did; ``values`` are the new entries of each effect."""
    todo: list[tuple[Effect, Entries]] = []
    for effect, new in zip(effects, values, strict=True):
        obj = resolve(effect.target)
        if effect.target.argument or state is None:
            before = effect.kind.entries(obj, None)
        else:
            before = state.entries(found, effect.target.number)
        entries = {key: new[effect.new[key]] if key in effect.new else before[key] for key in effect.keys}
        todo.append((effect, entries))
    for effect, entries in todo:
        if effect.target.argument or state is None:
            assert effect.kind.write is not None
            effect.kind.write(resolve(effect.target), entries, None)
        else:
            state.write(found, effect.target.number, entries)
