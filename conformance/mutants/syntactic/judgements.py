"""What readers have said of mutants that no case found: a table in the repository, by fingerprint."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from torchstone.conformance.errors import InputError

PATH = Path(__file__).with_name("judged.toml")


class Judgement(StrEnum):
    """What a survivor is: code that computes the same, or a mistake that the suite has no case for."""

    EQUIVALENT = "equivalent"
    HOLE = "hole"


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement on a mutant of a file, and the reason for it."""

    file: str
    judgement: Judgement
    reason: str


def read_judgements(path: Path = PATH) -> dict[str, Judged]:
    """The judgements by fingerprint. InputError for a row that is none, and for a mutant that is judged twice."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    found: dict[str, Judged] = {}
    for row in rows:
        try:
            name, reason = str(row["fingerprint"]), str(row["reason"]).strip()
            judged = Judged(str(row["file"]), Judgement(row["judgement"]), reason)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: not a judgement: {row}: {error}") from error
        if name in found or not judged.reason:
            raise InputError(f"{path}: {name} " + ("is judged twice" if name in found else "has no reason"))
        found[name] = judged
    return found
