"""How far a reduction has come, on disk: one that is cut off goes on from there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case

FILE = "so-far.safetensors"
_FOR = "so-far-of:"
"""The tag of such a case names what it is a reduction of."""


class Progress:
    """The simplest case so far of a reduction into ``folder``, in a file that is gone once it has ended.

    It belongs to one case on one backend: another reduction does not go on from it.
    """

    def __init__(self, folder: Path, original: Case, backend: str) -> None:
        self.path = folder / FILE
        self._tags = original.tags
        digest = hashlib.sha256(original.to_bytes() + b"\0" + backend.encode()).hexdigest()
        self._tag = f"{_FOR}{digest}"

    def read(self) -> Case | None:
        """Return the case of an earlier reduction of the same case, None where there is none that can be read."""
        try:
            case = Case.load(self.path)
        except (OSError, InputError):
            return None
        return case.replace(tags=self._tags) if self._tag in case.tags else None

    def write(self, case: Case) -> None:
        """Keep a case, whole or not at all."""
        fresh = self.path.with_suffix(".part")
        case.replace(tags=(*case.tags, self._tag)).save(fresh)
        os.replace(fresh, self.path)

    def end(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
