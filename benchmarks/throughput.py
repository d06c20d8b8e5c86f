"""Cases per second of two backends side by side: the same cases, one warm worker, one run.

Two rates are taken. *compile and call* is the backend's own time: `compile`, then one call of what it returns.
*verdict* is the whole case as the suite runs it: eager, the backend, the oracle. First each case is tried on both
backends in isolated workers, and kept if both pass it. Then one process times all of them, the backends in turn on
each batch of cases (and each first in every second round), so that whatever else the machine does meets both. A backend
that compiles many cases together does so, as in a worker; the others compile them one by one. The first round warms up
and does not count. The compile cache is on and cold: it is emptied before each batch is timed, so that nothing compiled
before is used again, and looking for it is paid for.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torchstone.compiler.runtime.cpu.cache import CACHE
from torchstone.conformance.backends import Backend, load
from torchstone.conformance.execution.run_case import compile_cases, run_case
from torchstone.conformance.execution.verdict import CORRECT
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import opinfo


def select(backends: list[str], ops: list[str] | None, dtype: str, per_op: int, most: int) -> list[Case]:
    """Return cases that every backend passes, spread evenly over those found, at most ``most``."""
    entries = opinfo.iterate(opinfo.select(ops), [dtype], per_op)
    cases = {entry.id: entry for entry in entries if isinstance(entry, Case)}
    for name in backends:
        with Pool(name, timeout=60.0, retry=False) as pool:
            verdicts = {verdict.case_id: verdict.outcome for verdict in pool.verdicts(cases.values())}
        print(
            f"{name}: passes {sum(outcome in CORRECT for outcome in verdicts.values())} of {len(verdicts)}",
            file=sys.stderr,
        )
        cases = {case_id: case for case_id, case in cases.items() if verdicts[case_id] in CORRECT}
    step = max(1.0, len(cases) / most)
    kept = list(cases.values())
    return [kept[int(i * step)] for i in range(min(most, len(kept)))]


def compile_and_call(cases: list[Case], backend: Backend) -> float:
    """Return the seconds that the backend takes to compile the cases and run each once."""
    CACHE.clear()
    args = [case.fresh_args() for case in cases]
    start = time.perf_counter()
    compiled = together(cases, backend)
    for index, case in enumerate(cases):
        call = compiled.pop(index, None) or backend.compile(case.program, case.fresh_args())
        call(*args[index])
        del call
    del compiled
    return time.perf_counter() - start


def verdict(cases: list[Case], backend: Backend) -> float:
    """Return the seconds of the whole cases: eager, backend, oracle."""
    CACHE.clear()
    start = time.perf_counter()
    compiled = together(cases, backend)
    for index, case in enumerate(cases):
        outcome = run_case(case, backend, compiled.pop(index, None)).outcome
        assert outcome in CORRECT, f"{case.id} on {backend.name}: {outcome}"
    return time.perf_counter() - start


def together(cases: list[Case], backend: Backend) -> dict[int, Any]:
    """Compile the cases as a worker does when they arrive together; nothing if the backend cannot."""
    return dict(enumerate(compile_cases(cases, backend))) if getattr(backend, "batch", 1) > 1 else {}


def measure(
    cases: list[Case], backends: list[Backend], rounds: int, once: Callable[[list[Case], Backend], float]
) -> list[list[list[float]]]:
    """Return seconds as [round][backend][batch]."""
    size = max(getattr(backend, "batch", 1) for backend in backends)
    batches = [cases[start : start + size] for start in range(0, len(cases), size)]
    found = []
    for number in range(rounds + 1):
        seconds: list[list[float]] = [[] for _ in backends]
        for batch in batches:
            order = range(len(backends)) if number % 2 else reversed(range(len(backends)))
            for index in order:
                seconds[index].append(once(batch, backends[index]))
        print(f"round {number} of {rounds}{' (warm-up)' if not number else ''}", file=sys.stderr)
        if number:
            found.append(seconds)
        gc.collect()
    return found


def summary(names: list[str], found: list[list[list[float]]], count: int) -> dict[str, Any]:
    """Return each backend's rate (median over rounds) and how many times as fast the first is as the last."""
    rates = [[count / sum(seconds[i]) for seconds in found] for i in range(len(names))]
    ratios = [sum(seconds[-1]) / sum(seconds[0]) for seconds in found]
    return {
        "cases_per_second": {name: round(statistics.median(rate), 2) for name, rate in zip(names, rates, strict=True)},
        "ratio": round(statistics.median(ratios), 2),
        "ratio_lowest": round(min(ratios), 2),
        "ratio_highest": round(max(ratios), 2),
    }


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", help="twice: what is compared [linalg, torch-mlir-linalg]")
    parser.add_argument("--op", action="append", help="op or shell pattern, repeatable [default: all]")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--per-op", type=int, default=1, help="first samples of each op to try [1]")
    parser.add_argument("--cases", type=int, default=150, help="cases to time, at most [150]")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, after one that warms up [3]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    names = options.backend or ["linalg", "torch-mlir-linalg"]
    if len(names) != 2:
        parser.error("give --backend twice, or not at all")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cases = select(names, options.op, options.dtype, options.per_op, options.cases)
    if not cases:
        sys.exit("no case passes on both backends")
    backends = [load(name) for name in names]
    for backend in backends:
        getattr(backend, "warm_up", lambda: None)()
    gc.collect()
    gc.freeze()  # as a worker does when it has warmed up
    result: dict[str, Any] = {"cases": len(cases), "ops": len({case.op for case in cases}), "rounds": options.rounds}
    for name, once in (("compile and call", compile_and_call), ("verdict", verdict)):
        result[name] = summary(names, measure(cases, backends, options.rounds, once), len(cases))
    if options.format == "json":
        print(json.dumps(result, indent=2))
        return
    print(f"{result['cases']} cases of {result['ops']} ops, {options.dtype}, one worker, {options.rounds} rounds\n")
    print(f"{'cases per second':<20}{names[0]:>16}{names[1]:>22}{'ratio':>9}  over rounds")
    for name in ("compile and call", "verdict"):
        row = result[name]
        rates = row["cases_per_second"]
        span = f"{row['ratio_lowest']} to {row['ratio_highest']}"
        print(f"{name:<20}{rates[names[0]]:>16}{rates[names[1]]:>22}{row['ratio']:>9}  {span}")


if __name__ == "__main__":
    main()
