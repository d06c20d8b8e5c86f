"""What became of mutants: the journal of their results, and the tables made from it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import markdown as escaped
from torchstone.conformance.escape import markdown_code


@dataclass(frozen=True)
class TrialResult:
    """What became of a mutant. ``case`` is the id of the first case that failed because of it, empty if none did.

    ``by`` is the source of that case; ``tried`` counts the cases up to it, ``alarms`` are those that the compiler fails
    without the mutant, ``seconds`` is wall time.
    """

    mutant: str
    group: str
    case: str = ""
    by: str = ""
    outcome: str = ""
    kind: str = ""
    message: str = ""
    tried: int = 0
    seconds: float = 0.0
    alarms: list[str] = field(default_factory=list)

    @property
    def detected(self) -> bool:
        return bool(self.case)


def read_journal(path: Path) -> dict[str, TrialResult]:
    """What a journal holds, by mutant. InputError for a line that is none of its own."""
    if not path.exists():
        return {}
    found: dict[str, TrialResult] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            fields = json.loads(line)
            one = TrialResult(fields.pop("bug"), **fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a line of a self-trial: {error}") from error
        found[one.mutant] = one
    return found


def append_to_journal(path: Path, found: TrialResult) -> None:
    """Add a line to a journal, or none of it. InputError when it cannot be written."""
    fields = dataclasses.asdict(found)
    line = json.dumps({"bug": fields.pop("mutant"), **fields}) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line.encode()) < len(line.encode()):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        why = f"cannot write to {path}: {error.strerror or error}"
        raise InputError(f"{why}; what is in it is kept: make room, and the same command goes on") from error


def table_rows(found: Mapping[str, TrialResult]) -> list[dict[str, Any]]:
    """One row a class of mutants, and one for all: how many there are, how many were found, and which were not."""
    groups: dict[str, list[TrialResult]] = {}
    for one in found.values():
        groups.setdefault(one.group, []).append(one)
    groups["all"] = list(found.values())
    return [
        {
            "class": name,
            "mutants": len(members),
            "detected": sum(one.detected for one in members),
            "undetected": [one.mutant for one in members if not one.detected] if name != "all" else [],
            "false alarms": len({alarm for one in members for alarm in one.alarms}),
        }
        for name, members in groups.items()
    ]


def markdown_tables(found: Mapping[str, TrialResult]) -> str:
    """The same as a table in Markdown, and below it how those found were found and the false alarms."""
    lines = ["| class | mutants | found | not found |", "| --- | ---: | ---: | --- |"]
    for row in table_rows(found):
        missed = ", ".join(map(markdown_code, row["undetected"]))
        lines.append(f"| {escaped(row['class'])} | {row['mutants']} | {row['detected']} | {missed} |")
    ways = Counter(_way(one) for one in found.values() if one.detected)
    lines += ["", "| found by | mutants |", "| --- | ---: |", *(f"| {way} | {n} |" for way, n in ways.most_common())]
    alarms = sorted({alarm for one in found.values() for alarm in one.alarms})
    lines += ["", f"False alarms in {sum(one.tried for one in found.values())} cases: {len(alarms)}."]
    return "\n".join([*lines, *map(markdown_code, alarms)])


def _way(one: TrialResult) -> str:
    variant = one.case.split(":")[4:]
    if one.by == "fuzz":
        return "programs of the fuzzer"
    return f"variant {markdown_code(variant[0])}" if variant else f"source {markdown_code(one.by)}"
