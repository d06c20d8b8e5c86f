"""The registry that finds backends by name.

A backend is named by its entry point in the group ``torchstone.backends`` or, while it is being developed, by
``package.module:attribute`` (the current folder is searched too). Options follow the name: ``linalg+no-library-calls``
is a backend of its own in stores and reports. Loading one imports its module and nothing of the compiler behind it:
that happens in ``available``, ``versions`` and ``compile``."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.errors import InputError, UnknownName

if TYPE_CHECKING:
    pass

GROUP = "torchstone.backends"


@functools.cache
def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}


def backend_names() -> list[str]:
    """Return the registered backend names, sorted, without importing any backend."""
    return sorted(_entry_points())


def check_backend_name(name: str) -> None:
    """Raise unless ``name`` is registered or has the form ``package.module:attribute``; imports nothing."""
    base = name.partition("+")[0]
    if ":" not in base and base not in _entry_points():
        raise UnknownName("backend", base, backend_names(), more="; `torchstone backends` lists them")


def is_shipped(name: str) -> bool:
    """Whether the backend is one of torchstone's own adapters."""
    base = name.partition("+")[0]
    return _entry_points().get(base, base).startswith("torchstone.")


def load(name: str) -> Backend:
    """Return the backend called ``name``: an instance, whatever the entry point names (class, factory or instance).

    Raises UnknownName for a name that is not registered, InputError for one that cannot be imported.
    """
    check_backend_name(name)
    name, *options = name.split("+")
    spec = _entry_points().get(name, name)
    module_name, _, attribute = spec.partition(":")
    if name == spec and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a backend under development lives beside the user, as with `python -m`
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        backend = found() if (callable(found) and not hasattr(found, "compile")) or isinstance(found, type) else found
    except Exception as error:
        raise InputError(f'backend "{name}" cannot be loaded: {type(error).__name__}: {error}') from error
    if not isinstance(backend, Backend):
        missing = [m for m in ("name", "available", "versions", "compile") if not hasattr(backend, m)]
        raise InputError(f'backend "{name}" is not a backend: it has no {", ".join(missing)}')
    known: Any = getattr(backend, "options", ())
    for option in options:
        if option not in known:
            raise InputError(f'backend "{name}" has no option "{option}"; it has {", ".join(known) or "none"}')
    return cast("Any", backend).configured(options) if options else backend


def describe_backend(backend: Backend) -> dict[str, Any]:
    """Return what a backend says of itself: ``ok``, ``reason``, ``install``, and ``versions`` where it can be used."""
    state = backend.available()
    versions = dict(backend.versions()) if state.ok else {}
    return {"ok": state.ok, "reason": state.reason, "install": state.install, "versions": versions}
