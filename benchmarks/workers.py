"""Cases per second of whole verdicts by the number of workers, and what each worker of more than one still gives.

The same cases for every number of workers of a backend: those that it passes. Each round has a pool of its own for each
number, in turns, so that nothing compiled before is used again and whatever else the machine does meets all of them;
its workers have done a few other cases when the clock starts. *efficiency* is the rate per worker over that of the
least number, the median over rounds; 1 where the cores are free and nothing is shared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

from torchstone.conformance.execution.verdict import CORRECT
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import opinfo

WARM = 2  # cases for each worker before the clock starts
BACKENDS = ["linalg", "inductor", "torch-mlir-linalg"]


def select(ops: list[str] | None, dtype: str, most: int) -> list[Case]:
    """Return the first sample of ops spread evenly over all of them, at most ``most``."""
    chosen = opinfo.select(ops)
    chosen = chosen[:: max(1, len(chosen) // most)]
    return [entry for entry in opinfo.iterate(chosen, [dtype], 1) if isinstance(entry, Case)][:most]


def measure(backend: str, cases: list[Case], jobs: list[int], rounds: int) -> dict[str, Any]:
    """Return the rates of a backend by number of workers, as a row of the table."""
    with Pool(backend, jobs=jobs[-1], retry=False) as pool:  # which stays: so does the fork server that all share
        outcomes = {verdict.case_id: verdict.outcome for verdict in pool.verdicts(cases)}
        passed = [case for case in cases if outcomes[case.id] in CORRECT]
        warm, timed = passed[: WARM * jobs[-1]], passed[WARM * jobs[-1] :]
        if not timed:
            return {"backend": backend, "cases": 0}
        rates: dict[int, list[float]] = {count: [] for count in jobs}
        for number in range(rounds):
            for count in jobs if number % 2 else reversed(jobs):
                rates[count].append(len(timed) / seconds(backend, count, warm, timed))
            print(f"{backend}: round {number + 1} of {rounds}", file=sys.stderr)
    row: dict[str, Any] = {"backend": backend, "cases": len(timed)}
    for count in jobs:
        row[f"cases/s, {count}"] = round(statistics.median(rates[count]), 2)
    for count in jobs[1:]:
        each = [many / one * jobs[0] / count for many, one in zip(rates[count], rates[jobs[0]], strict=True)]
        row[f"efficiency, {count}"] = round(statistics.median(each), 2)
    return row


def seconds(backend: str, jobs: int, warm: list[Case], timed: list[Case]) -> float:
    """Return how long so many new workers, once warm, take for the cases."""
    with Pool(backend, jobs=jobs, retry=False) as pool:
        list(pool.verdicts(warm))
        start = time.perf_counter()
        wrong = [verdict for verdict in pool.verdicts(timed) if verdict.outcome not in CORRECT]
        assert not wrong, wrong[0]
        return time.perf_counter() - start


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", help=f"repeatable [{', '.join(BACKENDS)}]")
    parser.add_argument("--op", action="append", help="op or shell pattern, repeatable [default: all]")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cases", type=int, default=150, help="cases a round, at most [150]")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds [3]")
    parser.add_argument("--jobs", default="1,2", help="numbers of workers, from the least, with commas [1,2]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    jobs = sorted({int(count) for count in options.jobs.split(",")})
    cases = select(options.op, options.dtype, options.cases)
    rows = [measure(backend, cases, jobs, options.rounds) for backend in options.backend or BACKENDS]
    if options.format == "json":
        print(json.dumps(rows, indent=2))
        return
    columns = list(max(rows, key=len))
    print("".join(f"{column:>18}" for column in columns))
    for row in rows:
        print("".join(f"{row.get(column, '-'):>18}" for column in columns))


if __name__ == "__main__":
    main()
