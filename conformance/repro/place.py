"""Where a verdict sees its failure: which result of the program, or which of its inputs as the call left it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Program

_STEP = r"\[(?:\d{1,6}|'[\w.-]{1,200}')\]"  # of other keys a script could not speak as they are
_NAME = rf"(?:output|input)(?:{_STEP})*"
_SAID = re.compile(rf"(?:^|: )({_NAME}): expected ")
_SHARES = re.compile(rf"^(?:elements of )?({_NAME}) (?:shares memory with|lies in|lie in) ")


@dataclass(frozen=True)
class Place:
    """An ``output`` of the program or an ``input`` of it, and the indices and keys that lead to it."""

    side: str
    path: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return self.side + "".join(f"[{step!r}]" for step in self.path)


def failing_place(verdict: Verdict) -> Place | None:
    """Return the place that a verdict names, None for one that names none, or names one of a part of the program."""
    if verdict.outcome is not Outcome.MISMATCH or verdict.message.startswith("the part "):
        return None
    return named_place(verdict.message, verdict.evidence)


def named_place(message: str, evidence: Mapping[str, Any]) -> Place | None:
    """Return the place that the message or the evidence of a verdict or a finding names, None if none does."""
    where = evidence.get("where")
    if isinstance(where, str):
        return place_of(where.removeprefix("around "))
    found = _SAID.search(message)
    return None if found is None else place_of(found[1])


def sharing_place(message: str) -> Place | None:
    """Return the first of the places that lie in one memory, as a message has it, None for another message.

    Which one is first hangs on what else the program returns: it is no place to keep while a case is reduced.
    """
    found = _SHARES.match(message)
    return None if found is None else place_of(found[1])


def place_of(name: str) -> Place | None:
    """Read what ``str`` makes of a place; None for any other text."""
    if not re.fullmatch(_NAME, name):
        return None
    steps = re.findall(_STEP, name)
    path = tuple(step[2:-2] if step[1] == "'" else int(step[1:-1]) for step in steps)
    return Place(name.partition("[")[0], path)


def ref_at(program: Program, path: tuple[int | str, ...]) -> Ref | None:
    """Return what a program returns at a path, as a reference; None where it returns nothing there."""
    value = program.outputs
    for at, step in enumerate(path):
        if isinstance(value, Ref):
            return Ref(value.name, (*value.path, *path[at:]))
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value if isinstance(value, Ref) else None
