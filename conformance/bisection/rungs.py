"""What a search is made of: compilers up to a stage, and the parts of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.conformance.execution.verdict import Verdict


@dataclass(frozen=True)
class Part:
    """A part of a stage that can be tried by itself.

    ``backend`` makes the compiler with this part alone, of its stage, in use; with ``without``, with all but this part.
    One that is ``shared`` by all others is to blame for what they show: where it is at fault, they are not tried.
    """

    name: str
    backend: Callable[[], Any]
    without: bool = False
    shared: bool = False
    what: str = ""

    def __str__(self) -> str:
        """What is tried, for people."""
        return self.what or (f"without {self.name}" if self.without else f"{self.name} alone")


@dataclass(frozen=True)
class Rung:
    """A compiler up to a stage, as a backend.

    ``stage`` is what it has more than the rung before. ``parts`` gives those of the stage, from the verdict on the rung
    before: its evidence names the ops. ``found`` is for a compiler that has a search of its own: it is given what says
    whether the compiler is right as it is, and names the part. ``given`` and ``made`` name the texts of the program
    before and after the stage, among the ``stages`` of what the backend compiles.
    """

    stage: str
    what: str
    backend: Callable[[], Any]
    parts: Callable[[Verdict], Sequence[Part]] = lambda before: ()
    found: Callable[[Callable[[], bool]], str] | None = None
    given: str = ""
    made: str = ""
