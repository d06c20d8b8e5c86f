"""What the isolated runner itself costs: milliseconds a case beyond the trial, and seconds until a dead worker has a
successor.

Eager is the backend, in one worker. The cases are made beforehand; of each round, the wall time that the trials took
inside the worker is taken off. A round of least cost is the one that other work on the machine disturbed least.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from typing import Any

from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import opinfo


def select(ops: list[str] | None, most: int) -> list[Case]:
    """Return float32 cases of many ops, at most ``most``."""
    cases = [entry for entry in opinfo.iterate(opinfo.select(ops), ["float32"], 1) if isinstance(entry, Case)]
    return cases[:: max(1, len(cases) // most)][:most]


def overhead(pool: Pool, cases: list[Case]) -> dict[str, float]:
    """Return the milliseconds a case of one round: wall, trial, their difference, and the runner's processor time."""
    start, cpu = time.perf_counter(), time.process_time()
    verdicts = list(pool.verdicts(cases))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    wrong = [verdict for verdict in verdicts if verdict.outcome not in ("pass", "fallback", "untested")]
    assert not wrong, wrong[0]
    trial = sum(verdict.seconds for verdict in verdicts)
    times = {"wall": wall, "trial": trial, "overhead": wall - trial, "runner": cpu}
    return {name: 1e3 * seconds / len(cases) for name, seconds in times.items()}


def respawn(pool: Pool, case: Case) -> float:
    """Kill the worker while it is idle; return the seconds until its successor has answered a case."""
    worker = pool._slots[0].worker
    assert worker is not None
    start = time.perf_counter()
    os.kill(worker.pid, signal.SIGKILL)
    while worker.code is None:  # a case that was sent to a dead worker would have its end for a verdict
        pool._step(0.01)
    assert pool.verdict(case).outcome != "crash"
    return time.perf_counter() - start


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", help="op or shell pattern, repeatable [default: all]")
    parser.add_argument("--cases", type=int, default=200, help="cases a round, at most [200]")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds, after one that warms up [5]")
    parser.add_argument("--respawns", type=int, default=5, help="workers to kill [5]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    cases = select(options.op, options.cases)
    if not cases:
        sys.exit("no cases")
    with Pool("eager", retry=False) as pool:
        start = time.perf_counter()
        pool.verdict(cases[0])
        first = time.perf_counter() - start
        rounds = [overhead(pool, cases) for _ in range(options.rounds + 1)][1:]
        deaths = [respawn(pool, cases[0]) for _ in range(options.respawns)]
    best = min(rounds, key=lambda row: row["overhead"])
    result: dict[str, Any] = {
        "cases": len(cases),
        "milliseconds a case": {name: round(value, 3) for name, value in best.items()},
        "overhead, median of rounds": round(statistics.median(row["overhead"] for row in rounds), 3),
        "seconds to the first verdict": round(first, 2),
        "seconds to respawn": {"median": round(statistics.median(deaths), 3), "most": round(max(deaths), 3)},
    }
    if options.format == "json":
        print(json.dumps(result, indent=2))
        return
    print(f"{len(cases)} cases, eager, one worker, best of {options.rounds} rounds")
    for name, value in result["milliseconds a case"].items():
        print(f"  {name:<10}{value:>8.3f} ms a case")
    print(f"  overhead, median of rounds: {result['overhead, median of rounds']:.3f} ms a case")
    print(
        f"first verdict after {first:.2f} s; a dead worker's successor answers after {statistics.median(deaths):.2f} s"
    )


if __name__ == "__main__":
    main()
