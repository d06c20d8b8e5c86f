"""An object that a program reaches, and a place in it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchstone.compiler.capture.state.kinds import Entries, Kind, Only
from torchstone.compiler.capture.state.watching import Reads


class Slot(NamedTuple):
    """A place that holds a value: an entry of an object."""

    node: int
    key: Hashable


@dataclass(slots=True, eq=False)
class Node:
    """An object with entries. ``saved`` are those that it had before the program ran, ``label`` is how it is called.

    ``place`` is where it was found; None for a root, a class, or the globals of a module, which stay what they are.
    ``seen`` is what the program has asked of an instance, None where nobody has looked. ``other`` stands for a tensor
    meanwhile, and has attributes of its own, which are ``hidden``.
    """

    obj: Any
    kind: Kind
    label: str
    place: Slot | None
    only: Only = None
    seen: Reads | None = None
    saved: Entries = field(default_factory=dict)
    other: Any = None
    hidden: frozenset[Hashable] = frozenset()

    def entries(self) -> Entries:
        """Return the entries that the object has now."""
        found = self.kind.entries(self.obj if self.other is None else self.other, self.only)
        return {key: value for key, value in found.items() if key not in self.hidden} if self.hidden else found

    def write(self, entries: Entries) -> None:
        """Give the object other entries."""
        assert self.kind.write is not None, self.kind
        if self.other is None:
            self.kind.write(self.obj, entries, self.only)
        else:
            own = self.kind.entries(self.other, self.only)
            self.kind.write(self.other, {**{key: own[key] for key in self.hidden if key in own}, **entries}, self.only)
