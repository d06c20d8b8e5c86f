"""The registry that finds backends by name.

A backend is named by its entry point in the group ``torchstone.backends`` or, while it is being developed, by
``package.module:attribute`` (the current folder is searched too). What that is may be a backend, or a function that
``torch.compile`` takes for one. Options follow the name: ``linalg+no-library-calls``
is a backend of its own in stores and reports. Loading one imports its module and nothing of the compiler behind it:
that happens in ``available``, ``versions`` and ``compile``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import Any, cast

from torchstone.compiler.registry import Registry
from torchstone.conformance.backends.adapters.dynamo_backend import DynamoBackend, is_dynamo_backend
from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.errors import InputError, UnknownName

GROUP = "torchstone.backends"


def _unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    return UnknownName(kind, name, known, more="; `torchstone backends` lists them")


def _adapted(name: str, found: Any) -> Any:
    """A function of two arguments is one that ``torch.compile`` takes for a backend."""
    return DynamoBackend(name, found) if is_dynamo_backend(found) else found


BACKENDS: Registry[Backend] = Registry(
    "backend",
    GROUP,
    ("name", "available", "versions", "compile"),
    unknown=_unknown,
    broken=InputError,
    adapt=_adapted,
)


def backend_names() -> list[str]:
    """Return the registered backend names, sorted, without importing any backend."""
    return sorted(BACKENDS)


def check_backend_name(name: str) -> None:
    """Raise unless ``name`` is registered, or ``package.module:attribute`` of a package there is; imports nothing."""
    base = name.partition("+")[0]
    if ":" not in base:
        BACKENDS.spec(base)
        return
    package = base.partition(":")[0].partition(".")[0]
    if package not in sys.modules and not _is_found(package):
        raise InputError(
            f'backend "{name}" cannot be loaded: there is no module {package}, here or in the current folder'
        )


def _is_found(package: str) -> bool:
    paths = [os.getcwd(), *sys.path]
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return PathFinder.find_spec(package, paths) is not None or any(f.find_spec(package, None) for f in finders)


def is_shipped(name: str) -> bool:
    """Whether the backend is one of torchstone's own adapters."""
    base = name.partition("+")[0]
    return (base if ":" in base else BACKENDS.spec(base)).startswith("torchstone.")


def load(name: str) -> Backend:
    """Return the backend called ``name``: an instance, whatever the entry point names (class, factory or instance).

    Raises UnknownName for a name that is not registered, InputError for one that cannot be imported.
    """
    name, *options = name.split("+")
    backend = BACKENDS.find(name)
    known: Any = getattr(backend, "options", ())
    for option in options:
        if option not in known:
            raise InputError(f'backend "{name}" has no option "{option}"; it has {", ".join(known) or "none"}')
    return cast("Any", backend).configured(options) if options else backend


def preloadable(name: str) -> tuple[str, ...]:
    """Modules that may be imported before workers of the backend are forked: none of one that torchstone does not ship,
    which may do anything as it is imported."""
    try:
        return tuple(getattr(load(name), "preload", ())) if is_shipped(name) else ()
    except InputError:  # what loads it will say so
        return ()


def describe_backend(backend: Backend) -> dict[str, Any]:
    """Return what a backend says of itself: ``ok``, ``reason``, ``install``, and ``versions`` where it can be used."""
    state = backend.available()
    versions = dict(backend.versions()) if state.ok else {}
    return {"ok": state.ok, "reason": state.reason, "install": state.install, "versions": versions}
