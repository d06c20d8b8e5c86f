"""What became of controls: the journal of their results, and the table made from it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchstone.conformance.controls import BACKEND_PREFIX, CONTROLS
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import shell_command

SAME = "same as eager"
"""What a verdict counts as where the control did nothing otherwise: it says nothing about the oracle."""


@dataclass(frozen=True)
class OpResult:
    """What became of all controls on one op: how many verdicts of each outcome, by control, and the failures.

    ``asked`` are the options that it was tried with; ``cases`` counts the cases, ``seconds`` is wall time.
    """

    op: str
    asked: dict[str, Any]
    cases: int = 0
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def read_journal(path: Path) -> list[OpResult]:
    """What a journal holds. InputError for a line that is none of its own."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(OpResult(**json.loads(line)))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a line of a trial of controls: {error}") from error
    return found


def append_to_journal(path: Path, found: OpResult) -> None:
    """Add a line to a journal. InputError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def table_rows(found: Iterable[OpResult]) -> list[dict[str, Any]]:
    """One row a control, and one for all: how many verdicts there are of each outcome, and how many failed."""
    found = list(found)
    names = [name for name in CONTROLS if any(name in one.outcomes for one in found)]
    outcomes = {name: sum((Counter(one.outcomes.get(name, {})) for one in found), Counter()) for name in names}
    failed = Counter(failure["control"] for one in found for failure in one.failures)
    outcomes["all"], failed["all"] = sum(outcomes.values(), Counter()), sum(failed.values())
    known = ("pass", "ill-conditioned", "untested", "unsupported")
    return [
        {
            "control": name,
            "verdicts": sum(counts.values()) - counts[SAME],
            **{outcome: counts[outcome] for outcome in known},
            "failed": failed[name],
        }
        for name, counts in outcomes.items()
    ]


def replay_command(failure: Mapping[str, str]) -> str:
    words = ("torchstone", "replay", failure["case"], "--backend", BACKEND_PREFIX + failure["control"])
    return shell_command(words)


def already_tried(journal: Iterable[OpResult], asked: Mapping[str, Any]) -> dict[str, OpResult]:
    """The results of a journal that were asked the same, by op."""
    return {one.op: one for one in journal if one.asked == asked}
