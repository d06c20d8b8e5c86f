"""The built-in compiler with one mutation of its source, as a backend.

    torchstone replay opinfo:sub:float32:1 --backend torchstone.conformance.mutants.syntactic:linalg+05c4cba5eb05

The option is the fingerprint of the mutation. The process that compiles with it has the mutation from then on.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torchstone.conformance.backends.adapters.builtin import Linalg
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.application import LiveCode, all_modules, import_all
from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.mutation import Mutation


class _Fingerprints:
    """What may be one: which there are is known only when all sources have been read."""

    def __contains__(self, name: str) -> bool:
        return re.fullmatch("[0-9a-f]{12}", name) is not None

    def __iter__(self) -> Iterator[str]:
        yield "the fingerprint of each mutation"


class MutatedSource(Linalg):
    """``linalg`` compiled from a source with a mutation; without an option, from the source as it is."""

    options = _Fingerprints()
    preload = (*Linalg.preload, *all_modules())
    fingerprint = ""

    def configured(self, options: Sequence[str]) -> MutatedSource:
        """Return the backend with one mutation. Raises InputError for several."""
        if len(options) != 1:
            raise InputError(f"one mutation at a time, not {len(options)}")
        out = copy.copy(self)
        out.name = f"{self.name}+{options[0]}"
        out.fingerprint = options[0]
        return out

    def warm_up(self) -> None:
        """Put the mutation into this process, if it is not there yet. Raises UnknownName for one that there is not."""
        if self.fingerprint and not _APPLIED:
            mutation, text = _find(self.fingerprint)
            import_all()
            mutated = LiveCode().mutated(mutation, text, lambda: None)
            mutated.__enter__()
            _APPLIED[self.fingerprint] = mutated  # kept: what ends it would take the mutation out
        if self.fingerprint and self.fingerprint not in _APPLIED:
            raise InputError(f"this process has another mutation already: {', '.join(_APPLIED)}")

    def settings(self) -> dict[str, Any]:
        """Return the options of ``compile``, once the mutation is in: every way of compiling asks for them."""
        self.warm_up()
        return super().settings()


BACKEND_NAME = "torchstone.conformance.mutants.syntactic:linalg"
_APPLIED: dict[str, Any] = {}
"""The mutation that this process has, by its fingerprint."""


def _find(fingerprint: str) -> tuple[Mutation, str]:
    """The mutation of a fingerprint, and the source of its file."""
    for target in population.TARGETS:
        for path, text in population.sources(target).items():
            for mutation in mutations(path, text):
                if mutation.fingerprint == fingerprint:
                    return mutation, text
    raise UnknownName("mutant", fingerprint, ())


linalg = MutatedSource()
