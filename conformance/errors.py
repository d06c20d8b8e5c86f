"""Errors that are the user's to fix: the command line prints their one line and exits with code 2."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.compiler.diagnostics import did_you_mean


class InputError(Exception):
    """What the user gave (a name, a file, a store, an option) cannot be used; the message says what to do."""


class UnknownName(InputError):
    """A name that is not in the list it is looked up in; the message suggests the closest one."""

    def __init__(self, kind: str, name: str, candidates: Iterable[str], *, more: str = "") -> None:
        known = list(candidates)
        hint = did_you_mean(name, known)
        if not hint and known and len(known) <= 12:
            hint = f" (known: {', '.join(known)})"
        super().__init__(f'unknown {kind} "{name}"{hint}{more}')


class HarnessError(Exception):
    """The harness itself could not do its work (a worker that never starts); never a backend's verdict."""
