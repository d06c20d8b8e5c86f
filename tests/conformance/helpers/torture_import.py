"""Backends that do their deed while they are loaded: ``torture_import:abort`` aborts as its name is looked up."""

from __future__ import annotations

import torture_backend
from torture_backend import Torture

torture_backend.SLEEP = 601  # tests beside these know their children by 600, and a daemon keeps no other mark


def __getattr__(name: str) -> type:
    if name == "raises":
        1 // 0  # noqa: B018
    if hasattr(Torture, name):
        getattr(Torture(), name)()
        return Torture
    raise AttributeError(name)
