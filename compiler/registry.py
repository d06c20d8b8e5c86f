"""Open registries: what we ship under a name, and what other installed packages add to it by entry point.

A registry knows names and where they lead. Nothing is imported until a name is loaded, so a plugin that is broken costs
only those who ask for it. An example: a package that declares

    [project.entry-points."torchstone.variants"]
    reversed = "my_package:REVERSED"

adds the variant ``reversed`` to every command that takes a variant.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from torchstone.compiler.diagnostics import TorchstoneWarning

T = TypeVar("T")

PREFIX = "torchstone."
"""How the groups of entry points begin that registries read."""


class PluginWarning(TorchstoneWarning):
    """A plugin cannot be used and is left out."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of another distribution: its name, ``module:attribute``, and the distribution with its version."""

    name: str
    spec: str
    distribution: str


class Registry(Collection[str], Generic[T]):
    """The names of one kind of thing, ours in their order and then those of plugins, sorted; loaded one by one.

    ``group`` is the group of entry points. ``needs`` is the class of what is registered, or the attributes it must
    have. ``rows`` are ours: a name, and the module or ``module:attribute``. What is found may be the thing itself, or a
    class or function that makes it.

    ``unknown(kind, name, names)`` makes the exception for a name that is not registered. ``broken(message)`` makes the
    one for a plugin that cannot be used; the message names the plugin and its distribution. ``adapt(name, found)`` may
    turn what was found into what is needed.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        needs: type[T] | tuple[str, ...],
        rows: Mapping[str, str] | None = None,
        *,
        unknown: Callable[[str, str, Iterable[str]], Exception],
        broken: type[Exception],
        adapt: Callable[[str, Any], Any] = lambda name, found: found,
    ) -> None:
        self.kind, self.group, self.needs = kind, group, needs
        self.rows: Mapping[str, str] = rows or {}
        self._unknown, self._broken, self._adapt = unknown, broken, adapt

    def __iter__(self) -> Iterator[str]:
        yield from self.rows
        yield from sorted({plugin.name for plugin in self.plugins()} - self.rows.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.rows or any(plugin.name == name for plugin in self.plugins())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def plugins(self) -> tuple[Plugin, ...]:
        """Return what the installed distributions register, by name. Imports none of it."""
        return _plugins().get(self.group, ())

    def spec(self, name: str) -> str:
        """Return where a name leads. Raises for an unknown name, and for one that is registered twice."""
        found = [plugin for plugin in self.plugins() if plugin.name == name]
        if name in self.rows and found:
            raise self._broken(
                f'{self.kind} "{name}" of {found[0].distribution} has the name of one that torchstone ships: '
                "rename it, or uninstall that package"
            )
        if len({plugin.spec for plugin in found}) > 1:
            owners = " and by ".join(plugin.distribution for plugin in found)
            raise self._broken(f'{self.kind} "{name}" is registered twice, by {owners}: uninstall one of them')
        if name not in self.rows and not found:
            raise self._unknown(self.kind, name, self)
        return self.rows.get(name) or found[0].spec

    def load(self, name: str) -> T:
        """Import what is registered under a name and return it. Raises as ``spec``, and for what cannot be used."""
        return self._imported(name, self.spec(name))

    def find(self, name: str) -> T:
        """Return what a user asks for: a registered name, or ``module:attribute`` of what is being developed.

        The latter imports any module, from the current folder too, as ``python -m`` does. It is for names that a user
        typed, never for one that a file brought along.
        """
        if ":" not in name:
            return self.load(name)
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return self._imported(name, name)

    def usable(self, pattern: str = "*") -> Iterator[str]:
        """Yield the names of a shell pattern that can be loaded; issue a ``PluginWarning`` for each that cannot."""
        registered = {plugin.name for plugin in self.plugins()}
        for name in fnmatch.filter(self, pattern):
            if name in registered:
                try:
                    self.load(name)
                except self._broken as error:
                    warnings.warn(f"left out: {error}", PluginWarning, stacklevel=2)
                    continue
            yield name

    def _imported(self, name: str, spec: str) -> T:
        owner = next((f" of {plugin.distribution}" for plugin in self.plugins() if plugin.name == name), "")
        module, _, attribute = spec.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
            found = self._adapt(name, found)
            if isinstance(found, type) or (callable(found) and self._complaint(found)):
                found = found()
        except Exception as error:  # anything: a plugin is imported and called
            message = f'{self.kind} "{name}"{owner} cannot be loaded: {type(error).__name__}: {error}'
            raise self._broken(message) from error
        if complaint := self._complaint(found):
            raise self._broken(f'{self.kind} "{name}"{owner} is not a {self.kind}: {complaint}')
        return cast("T", found)

    def _complaint(self, found: Any) -> str:
        if isinstance(self.needs, type):
            wanted = f"{self.needs.__module__}.{self.needs.__qualname__}"
            return "" if isinstance(found, self.needs) else f"{type(found).__name__}, where a {wanted} is needed"
        missing = [name for name in self.needs if not hasattr(found, name)]
        return f"it has no {', '.join(missing)}" if missing else ""


@functools.cache
def _plugins() -> dict[str, tuple[Plugin, ...]]:
    """What the installed distributions register, by group. Read once: it takes some 20 ms."""
    points = entry_points()
    return {
        group: tuple(Plugin(point.name, point.value, _owner(point)) for point in points.select(group=group))
        for group in points.groups
        if group.startswith(PREFIX)
    }


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
