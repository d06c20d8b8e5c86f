"""Which planted bugs show in programs of the generator: one stream of programs, every bug, no campaign around them.

A bug *shows* where the bits of its backend are not eager's, in one of two calls. It is *found* where the verdict on it
is a failure: at most ``--verdicts`` programs that show it are judged. A bug in no op is judged on ten times as many.
Of bugs that are held out there are numbers, and no names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from planted_bugs import RecordedOps, right_backends, same_results

from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.planted import BUGS, PlantedBug
from torchstone.conformance.planted import load as load_bug
from torchstone.conformance.program.case import Case
from torchstone.fuzz.generator.generate import DRAWS
from torchstone.fuzz.generator.variants import nth_case
from torchstone.fuzz.guidance import Guidance


@dataclass
class Row:
    """What became of a bug: programs that call what it changes, and that show it; the number of the first of these, and
    of the one that was found wrong, -1 where there is none. ``outcomes`` are those of programs that show it.
    """

    called: int = 0
    shown: int = 0
    first: int = -1
    found: int = -1
    case: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)


def aten_ops(case: Case) -> tuple[set[str], Observed] | None:
    """The ATen ops that a program calls, and what eager leaves of it.

    None for a program that is not run, and for one that draws random numbers: its bits are others each time.
    """
    if DRAWS in case.tags or undefined_behavior(case):
        return None
    seen: set[str] = set()
    try:
        with RecordedOps(seen):
            case.program(*case.fresh_args())
        return seen, observe(case.program, case.fresh_args())
    except Exception:  # eager refuses it
        return None


def shows(bug: PlantedBug, case: Case, expected: Observed) -> bool:
    backend = load_bug(bug.name)
    try:
        compiled = backend.compile(case.program, case.fresh_args())
        return not all(same_results(expected, observe(compiled, case.fresh_args())) for _ in range(2))
    except Exception:  # the backend refuses it
        return True


def ask(bug: PlantedBug, case: Case, number: int, expected: Observed, row: Row, verdicts: int) -> None:
    """Try a program on a bug that is not found yet."""
    row.called += 1
    most = verdicts if bug.ops else 10 * verdicts
    if sum(row.outcomes.values()) >= most or (bug.ops and not shows(bug, case, expected)):
        return
    row.shown += 1
    row.first = number if row.first < 0 else row.first
    verdict = run_case(case, load_bug(bug.name))
    row.outcomes[str(verdict.outcome)] = row.outcomes.get(str(verdict.outcome), 0) + 1
    if verdict.failed and all(not run_case(case, right).failed for right in right_backends()):
        row.found, row.case = number, "\n".join(map(str, case.program.calls))


def measure(options: argparse.Namespace) -> dict[str, Row]:
    """Every bug of the half on the programs of a stream."""
    held_out = options.half == "held-out"
    rows = {bug.name: Row() for bug in BUGS.values() if bug.held_out is held_out}
    guidance, began = Guidance(), time.monotonic()
    for number in range(options.programs):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            case = nth_case(options.seed, number, specials=options.special_values, novelty=guidance)
            told = aten_ops(case)
            for name, row in rows.items() if told else ():
                ops = set(BUGS[name].ops)
                if row.found < 0 and (not ops or ops & told[0]):
                    ask(BUGS[name], case, number, told[1], row, options.verdicts)
        if number % 100 == 99:
            found = sum(row.found >= 0 for row in rows.values())
            print(
                f"{number + 1} programs, {time.monotonic() - began:.0f} s: {found} found", file=sys.stderr, flush=True
            )
    return rows


def show(rows: dict[str, Row], names: bool) -> None:
    """The numbers, and why the others were not found."""
    ends: Counter[str] = Counter()
    missed: dict[str, list[str]] = {}
    for name, row in rows.items():
        end = "found" if row.found >= 0 else "shown" if row.shown else "called" if row.called else "not called"
        ends[end] += 1
        missed.setdefault(end, []).append(f"{name} ({row.called}, {row.outcomes or BUGS[name].when})")
    print(", ".join(f"{end}: {count}" for end, count in ends.most_common()), f"of {len(rows)}")
    for end in ("shown", "called", "not called") if names else ():
        print(f"\n{end}, not found:")
        print("\n".join(f"  {line}" for line in missed.get(end, ())))


def main() -> None:
    """Measure, and print what became of the bugs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--half", choices=("shown", "held-out"), default="shown")
    parser.add_argument("--verdicts", type=int, default=4, help="programs that show a bug and are judged, at most")
    parser.add_argument("--special-values", action="store_true", help="in every program")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options)
    if options.json:
        options.json.write_text(json.dumps({name: vars(row) for name, row in rows.items()}))
    show(rows, options.half == "shown")


if __name__ == "__main__":
    main()
