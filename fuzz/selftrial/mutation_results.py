"""What became of syntactic mutants: the journal, the rate, and the list of those that no case found."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.mutants.syntactic.judgements import Judged, Judgement

UNREACHED = "unreached"
UNJUDGED = "unjudged"


@dataclass(frozen=True)
class MutationResult:
    """What became of a mutation: where it is, the line before and after, and the first case that failed because of it.

    ``covered`` counts the cases of the line map that run the line. ``ops`` are the ops that were tried. ``tried``
    counts the cases up to the failing one, ``reached`` those in which the mutated code ran. ``seconds`` is wall time.
    """

    fingerprint: str
    path: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    ops: list[str] = field(default_factory=list)
    covered: int = 0
    tried: int = 0
    reached: int = 0
    seconds: float = 0.0
    case: str = ""
    by: str = ""
    outcome: str = ""
    kind: str = ""
    message: str = ""

    @property
    def killed(self) -> bool:
        return bool(self.case)


def read_mutation_journal(path: Path) -> dict[str, MutationResult]:
    """What a journal holds, by fingerprint. InputError for a line that is none of its own."""
    found: dict[str, MutationResult] = {}
    if not path.exists():
        return found
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            one = MutationResult(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a line of a trial of mutants: {error}") from error
        found[one.fingerprint] = one
    return found


def append_to_mutation_journal(path: Path, found: MutationResult) -> None:
    """Add a line to a journal. InputError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def state_of(one: MutationResult, judged: Mapping[str, Judged]) -> str:
    """One word: the outcome that killed a mutant, or the judgement on it."""
    if one.killed:
        return one.outcome
    if one.fingerprint in judged:
        return str(judged[one.fingerprint].judgement)
    return UNJUDGED if one.reached else UNREACHED


def rate_rows(found: Iterable[MutationResult], judged: Mapping[str, Judged]) -> list[dict[str, Any]]:
    """One row an operator, and one for all: how many mutants, equivalent ones, killed ones, and the rate in percent.

    The rate is of the mutants that are not judged equivalent. One that is judged so and was killed counts as killed.
    """
    groups: dict[str, list[MutationResult]] = {}
    results = list(found)
    for one in results:
        groups.setdefault(one.operator, []).append(one)
    rows = []
    for name, members in (*sorted(groups.items()), ("all", results)):
        killed = sum(one.killed for one in members)
        equivalent = sum(state_of(one, judged) == Judgement.EQUIVALENT for one in members)
        asked = len(members) - equivalent
        rate = f"{100 * killed / asked:.1f}" if asked else ""
        rows.append(
            {"operator": name, "mutants": len(members), "equivalent": equivalent, "killed": killed, "rate": rate}
        )
    return rows


COLUMNS = (
    "mutant", "where", "operator", "before", "after", "state", "reason", "case", "ops", "covered", "tried", "reached",
)  # fmt: skip


def mutant_rows(found: Iterable[MutationResult], judged: Mapping[str, Judged]) -> list[dict[str, Any]]:
    """One row a mutant: where, the change, what was tried, and what became of it."""
    return [
        {
            **{name: getattr(one, name) for name in COLUMNS if hasattr(one, name)},
            "mutant": one.fingerprint,
            "where": f"compiler/{one.path}:{one.line}",
            "state": state_of(one, judged),
            "reason": judged[one.fingerprint].reason if one.fingerprint in judged else "",
        }
        for one in found
    ]


def survivors_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The survivors as a reader wants them: a diff of one line each, and what was tried."""
    out = []
    for row in rows:
        ops = ", ".join(row["ops"]) or "no op"
        out += [
            f"{row['mutant']}  {row['where']}  {row['state']}" + (f": {row['reason']}" if row["reason"] else ""),
            f"  - {row['before']}",
            f"  + {row['after']}",
            f"  {row['tried']} cases tried, {row['reached']} ran it: {ops}",
        ]
    return "\n".join(out)


def killers(found: Iterable[MutationResult]) -> list[dict[str, Any]]:
    """How mutants were killed: by which outcome, and by which source or variant, the most frequent first."""
    ways = Counter((one.outcome, (one.case.split(":") + [""] * 5)[4] or one.by) for one in found if one.killed)
    return [{"outcome": outcome, "by": by, "mutants": count} for (outcome, by), count in ways.most_common()]
