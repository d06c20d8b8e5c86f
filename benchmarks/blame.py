"""How often ``torchstone bisect`` is right: mutants of our own compiler, and the stage that it names for each.

A drawn mutant is tried until a case fails because of it. The case is bisected with the mutant in the compiler, and the
stage that is named is held against the file that was mutated. The journal makes it go on where it was stopped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torchstone.conformance.bisection import Blame, bisect
from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.verdict import FAILURES
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.application import LiveCode
from torchstone.conformance.mutants.syntactic.mutation import Mutation
from torchstone.conformance.sources import find_case, load
from torchstone.fuzz.selftrial.line_map import LineMap, line_map, spaced, trace_op
from torchstone.fuzz.selftrial.reaching_cases import Effort
from torchstone.fuzz.selftrial.syntactic import SyntacticTrial

FOLDER = Path(".torchstone")
EFFORT = Effort(ops=6, reaching=16, limit=2, dtypes=3, varied_ops=2, variants=40, programs=0, patience=30)
"""Less than the self-trial spends: what is asked here is who is blamed, not whether the mutant is found."""

STAGES = {
    "transforms": "expansions",
    "transforms/legalizations": "lowering",
    "transforms/channels_last.py": "lowering",
    "transforms/sink_transposes.py": "lowering",
    "transforms/decompose.py": "decompositions",
    "transforms/own_decompositions.py": "decompositions",
    "transforms/grouped_mm.py": "decompositions",
    "transforms/shapes.py": "decompositions",
    "transforms/size_specialization.py": "decompositions",
    "lowering": "lowering",
    "lowering/partition.py": "schedule",
    "lowering/steps.py": "schedule",
    "lowering/mlir_passes": "code",
    "lowering/mlir_passes/sums.py": "lowering",
    "lowering/stablehlo/to_linalg.py": "to linalg",
    "lowering/tensorrt": "tensorrt",
    "runtime": "runtime",
    "runtime/tensorrt": "tensorrt",
    "runtime/host_schedule.py": "schedule",
    "runtime/control.py": "schedule",
    "runtime/draws.py": "schedule",
}
"""The stage that the code of a folder or file is part of. The nearest one decides."""

COMMON = ("runtime", "code")
"""What every kernel goes through is the runtime's to ``bisect``, and part of ``code`` where few kernels show it."""


def stages_of(path: str) -> tuple[str, ...]:
    """The stages that are right for a mutant of a file."""
    known = [name for name in STAGES if path == name or path.startswith(f"{name}/")]
    if not known:
        raise KeyError(f"no stage is known of compiler/{path}")
    stage = STAGES[max(known, key=len)]
    return COMMON if stage in COMMON else (stage,)


def row_of(mutation: Mutation, text: str, case: str, blame: Blame, seconds: float) -> dict[str, Any]:
    """What became of a mutant: what was named, and whether that is where the mutant is."""
    before, after = mutation.diff(text)
    return {
        "fingerprint": mutation.fingerprint, "path": mutation.path, "line": mutation.line, "before": before,
        "after": after, "case": case, "outcome": str(blame.verdict.outcome), "stage": blame.stage,
        "unsure": list(blame.or_else), "parts": list(blame.parts),
        "right": blame.stage in stages_of(mutation.path), "seconds": round(seconds, 1),
        "tried": [[one.name, one.shows, one.verdict.message[:200]] for one in blame.tried],
    }  # fmt: skip


def measured(trial: SyntacticTrial, mutations: Iterable[Mutation]) -> Iterator[dict[str, Any]]:
    """A row for each mutant that a case fails because of; none for one that is declined, or that no case finds."""
    live = LiveCode()
    for mutation in mutations:
        try:
            found = trial.try_mutation(mutation)
        except HarnessError as error:
            print(mutation.fingerprint, mutation.path, error, file=sys.stderr)
            continue
        if not found.killed or found.outcome not in {str(outcome) for outcome in FAILURES}:
            yield {"fingerprint": mutation.fingerprint, "path": mutation.path, "case": "", "outcome": found.outcome}
            continue
        text, began = trial.texts[mutation.path], time.perf_counter()
        with live.mutated(mutation, text, lambda: None):
            blame = bisect(find_case(found.case), trial.target, trial.timeout)
        yield row_of(mutation, text, found.case, blame, time.perf_counter() - began)


def some_lines(target: str, ops: int) -> LineMap:
    """Which lines some ops run, kept for as long as the compiler's sources stay: a tenth of the ops takes a minute."""
    path = FOLDER / f"some-lines-{target}-{ops}-{population.digest()}.json.gz"
    if path.exists():
        return LineMap.from_json(json.loads(gzip.decompress(path.read_bytes())))
    lines = LineMap()
    for op in spaced(load("opinfo").op_names(), ops):
        for case, ran in trace_op(target, op):
            lines.add(case, ran)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(lines.to_json()).encode()))
    return lines


def summary(rows: Iterable[dict[str, Any]]) -> str:
    """The rate in all and by stage, then what was wrong. A failure that does not come again has nobody to blame."""
    rows = [row for row in rows if row["case"]]
    asked = [row for row in rows if row["stage"]]
    lines, right = [], Counter(stages_of(row["path"])[0] for row in asked if row["right"])
    for stage, count in Counter(stages_of(row["path"])[0] for row in asked).most_common():
        lines.append(f"{stage:<16} {right[stage]:>4} of {count}")
    lines.append(f"{'all':<16} {right.total():>4} of {len(asked)}")
    lines.append(f"{'not again':<16} {len(rows) - len(asked):>4}")
    for row in asked:
        if not row["right"]:
            named = ": ".join([row["stage"], ", ".join(row["parts"])]).removesuffix(": ")
            lines.append(f"{row['fingerprint']}  compiler/{row['path']}:{row['line']}  {row['case']}  named {named}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=40, help="mutants that fail a case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="linalg")
    parser.add_argument("--under", default="", help="draw from this folder or file of the compiler alone")
    parser.add_argument("--ops", type=int, default=60, help="ops whose lines are traced; 0: all")
    parser.add_argument("--journal", type=Path, help="[default: .torchstone/blame-TARGET-SEED.jsonl]")
    options = parser.parse_args()
    journal = options.journal or FOLDER / f"blame-{options.target}-{options.seed}.jsonl"
    journal.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    known = {row["fingerprint"] for row in rows}
    lines = some_lines(options.target, options.ops) if options.ops else line_map(options.target, FOLDER)
    with SyntacticTrial(lines, options.target, EFFORT) as trial:
        drawn = population.draw(trial.texts, options.seed)
        left = (m for m in drawn if m.path.startswith(options.under) and m.fingerprint not in known)
        for row in measured(trial, trial.applicable(left)) if _failing(rows) < options.mutants else ():
            rows.append(row)
            with journal.open("a") as file:
                file.write(json.dumps(row) + "\n")
            told = f"{row['stage']} {row['parts']}: {'right' if row['right'] else 'WRONG'}" if row.get("stage") else "-"
            print(f"{_failing(rows)}/{options.mutants}  {row['path']}  {told}", file=sys.stderr, flush=True)
            if _failing(rows) >= options.mutants:
                break
    print(summary(rows))


def _failing(rows: Iterable[dict[str, Any]]) -> int:
    return sum(bool(row["case"] and row["stage"]) for row in rows)


if __name__ == "__main__":
    main()
